"""`onnx-bisect submit`: the diagnosis that `run` makes, made by a server, with the output and exit statuses of it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from onnxbisect.errors import BackendUnusableError, OnnxBisectError, OptionError
from onnxbisect.model.external import locations
from onnxbisect.model.read import read
from onnxbisect.report import model_explorer
from onnxbisect.report.files import culprit_dirs, put, write
from onnxbisect.report.text import clean, plural
from onnxbisect_backends.probing.culprit_files import DATA_NAME, LOG_NAME
from onnxbisect_backends.probing.prober import PROBE_NAME
from onnxbisect_backends.working_folder import working_folder
from onnxbisect_cli.arguments import Format
from onnxbisect_cli.remote import Server
from onnxbisect_cli.reports import demand_overview, relabelled, render, render_overview, write_overview
from onnxbisect_cli.run_job import demand_folder, exit_code
from onnxbisect_cli.signals import stopping
from onnxbisect_cli.targets import Chosen


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks for. `calibration` is a sample, or a folder of them."""

    model: Path
    server: str
    token: str = field(repr=False)
    targets: Sequence[Chosen]
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    budget_calls: int | None = None
    budget_seconds: float | None = None
    seconds: float | None = None
    recheck: bool = False
    calibration: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    webhook: str | None = None
    priority: int = 0


def submit(request: Request, *, wait: bool, out: Path | None, form: Format) -> int:
    """Returns the exit status. Without `wait` that is 0 once the server has the job, whose URL is all of the output."""
    for target in request.targets:
        _demand_name(target.backend)
    if len(request.targets) > 1:
        demand_overview(form)
    if out is not None:
        demand_folder(out)
    proto, sha256, _ = read(request.model)
    folder = request.model.parent
    data = [path.relative_to(folder).as_posix() for path in locations(proto, folder)]
    del proto
    labels = [target.label for target in request.targets]
    with Server(request.server, request.token) as server:
        job = server.create(_job(request, server, server.upload(request.model, sha256, data)), key=str(uuid4()))
        if not wait:
            print(job["url"])
            return 0
        with stopping(_interrupt) as interruption:
            try:
                _say(f"job {job['id']}: {job['page']}")
                ended = server.ended(job["id"], _Told(labels))
            except KeyboardInterrupt:
                server.cancel(job["id"])
                _say("interrupted; the job is cancelled, the verdicts that it has are kept.")
                return interruption.exit_code
        if ended["state"] != "done":
            raise _failure(ended)
        return _show(server, ended, labels, out, form)


def _demand_name(backend: str) -> None:
    if "/" in backend or backend.endswith(".toml"):
        raise OptionError(
            f"--backend {backend} is a file, and a server takes names of backends that it has; 'onnx-bisect run' takes "
            "files."
        )


def _job(request: Request, server: Server, sha256: str) -> dict[str, Any]:
    budget = {"calls": request.budget_calls, "seconds": request.budget_seconds}
    wanted: dict[str, Any] = {
        "model": sha256,
        "targets": [{"backend": target.backend, "options": target.options} for target in request.targets],
        "input_shapes": {name: list(shape) for name, shape in request.input_shapes.items()},
        "budget": {key: value for key, value in budget.items() if value is not None},
        "seconds": request.seconds,
        "recheck": request.recheck,
        "labels": dict(request.labels),
        "webhook": request.webhook,
        "priority": request.priority,
    }
    if request.calibration is not None:
        wanted["calibration"] = {path.name: server.store(path) for path in _samples(request.calibration)}
    return {key: value for key, value in wanted.items() if value not in (None, {}, False, 0)}


def _samples(calibration: Path) -> list[Path]:
    given = sorted(calibration.iterdir()) if calibration.is_dir() else [calibration]
    samples = [path for path in given if path.suffix in (".npz", ".npy")]
    if not samples:
        raise OptionError(
            f"--calibration {calibration} has no .npz or .npy: a server takes these, or a folder of them."
        )
    return samples


class _Told:
    """A line on standard error whenever something has changed."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._said: set[str] = set()

    def __call__(self, job: dict[str, Any]) -> None:
        for label, target in zip(self._labels, job["targets"], strict=True):
            left = f" of about {target['calls'] + round(target['expected'])}" if target["expected"] else ""
            found = plural(len(target["culprits"]), "culprit")
            line = f"{label}: {target['state']}, {target['calls']}{left} calls, {found} so far"
            if line not in self._said:
                _say(line)
                self._said.add(line)


def _show(server: Server, job: dict[str, Any], labels: Sequence[str], out: Path | None, form: Format) -> int:
    targets = dict(zip(labels, job["targets"], strict=True))
    reports = {
        label: server.report(job["id"], target["number"])
        for label, target in targets.items()
        if target["state"] == "done"
    }
    overview = relabelled(server.report(job["id"]), labels) if len(targets) > 1 else None
    failures = {label: _failure(target) for label, target in targets.items() if label not in reports}
    for label, failure in failures.items():
        _say(f"{label}: {clean(str(failure))}")
    unwritten = None
    if out is not None:
        if overview is not None:
            write_overview(overview, out)
        for label, report in reports.items():
            try:
                _write(server, job["id"], targets[label]["number"], report, out if overview is None else out / label)
            except (OnnxBisectError, OSError) as error:  # the answer is there, whatever of it cannot be fetched or kept
                unwritten = unwritten or error
    files = "" if out is None or unwritten else str(out)
    if overview is None:
        sys.stdout.write(render(reports[labels[0]], form, files=files))
    else:
        sys.stdout.write(render_overview(overview, form, files=files))
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
    return max([*map(exit_code, reports.values()), *(failure.exit_code for failure in failures.values())])


def _failure(ended: Mapping[str, Any]) -> OnnxBisectError:
    """What keeps a job, or a target of it, from having a report: the user's mistake, as in `run`, or no answer."""
    problem = ended["problem"] or f"The job is {ended['state']}."
    return OptionError(problem) if ended.get("fault") == "request" else BackendUnusableError(problem)


def _write(server: Server, job_id: str, target: int, report: dict[str, Any], out: Path) -> None:
    """The files that `run` writes: every form of the report, and what reproduces each culprit."""
    with working_folder() as fetching:
        files: dict[str, dict[str, Path | bytes]] = {}
        for number, (culprit, folder) in enumerate(zip(report["culprits"], culprit_dirs(report), strict=True), 1):
            fetched: dict[str, Path | bytes] = {}
            for file in (PROBE_NAME, DATA_NAME, LOG_NAME):
                path = fetching / f"{number}-{file}"
                if culprit["repro"] and server.culprit_file(job_id, target, number, file, path):
                    fetched[file] = path
                else:
                    (out / folder / file).unlink(missing_ok=True)  # an earlier run's proves nothing about this one
            files[culprit["id"]] = fetched
        write(report, out, files)
    for place in model_explorer.FILES:
        content = server.model_explorer(job_id, target, place.rpartition("/")[2])
        if content is None:
            (out / place).unlink(missing_ok=True)  # of an earlier run
            _say(f"there is no {place}: the server has no picture of the model.")
            continue
        (out / place).parent.mkdir(exist_ok=True)
        put(out / place, content)


def _say(sentence: str) -> None:
    print(f"onnx-bisect: {sentence}", file=sys.stderr, flush=True)


def _interrupt() -> None:
    raise KeyboardInterrupt
