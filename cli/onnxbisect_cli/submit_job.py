"""`onnx-bisect submit`: the diagnosis of `run`, made by a server, with the same output and exit statuses."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from onnx_bisect import Client, JobTerms, RemoteJob
from onnx_bisect.client import failure
from onnx_bisect.job_documents import JobStatus, TargetStatus
from onnxbisect.errors import OnnxBisectError
from onnxbisect.report.rendering import compile_all, environment
from onnxbisect.report.text import clean, plural
from onnxbisect_cli.arguments import Format
from onnxbisect_cli.reports import demand_overview, relabelled, render, render_overview, write_overview
from onnxbisect_cli.results import demand_folder, exit_code, write_files
from onnxbisect_cli.signals import stopping
from onnxbisect_cli.targets import Chosen


@dataclass(frozen=True, kw_only=True)
class Request:
    """The user's request. `calibration` is a sample or a folder of samples; `terms` apply to `targets`."""

    model: Path
    server: str
    token: str = field(repr=False)
    targets: Sequence[Chosen]
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    calibration: Path | None = None
    terms: JobTerms


def submit(request: Request, *, wait: bool, out: Path | None, form: Format) -> int:
    """Submit the job, wait and show its results; returns the exit status.

    Without `wait` it only prints the job's URL, and the status is 0.
    """
    if len(request.targets) > 1:
        demand_overview(form)
    if out is not None:
        demand_folder(out)
    labels = [target.label for target in request.targets]
    with Client(request.server, request.token) as client:
        job = client.submit(
            request.model,
            input_shapes=request.input_shapes,
            calibration=request.calibration,
            **request.terms,
        )
        if not wait:
            print(job.url)
            return 0
        with stopping(interrupt) as interruption:
            try:
                say(f"job {job.id}: {job.page}")
                # templates compile while the server works
                Thread(target=compile_all, args=[environment()], daemon=True).start()
                ended = job.wait(ProgressLines(labels))
            except KeyboardInterrupt:
                job.cancel()
                say("interrupted; the job is cancelled, the verdicts that it has are kept.")
                return interruption.exit_code
        if ended["state"] != "done":
            raise failure(ended)
        codes = _show(job, ended["targets"], labels, out, form)
        if request.terms.get("repair") is not None:
            from onnxbisect_cli import submit_fix  # it imports the engine

            folders = {label: out if out is None or len(labels) == 1 else out / label for label in labels}
            repairs = submit_fix.show(request.model, job, ended["targets"], folders, told=form is Format.TEXT)
            codes = {label: repairs.get(label, code) for label, code in codes.items()}
        return max(codes.values())


class ProgressLines:
    """Prints a line on standard error whenever the job's progress changes."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._said: set[str] = set()

    def __call__(self, job: JobStatus) -> None:
        """Print the job's progress."""
        for label, target in zip(self._labels, job["targets"], strict=True):
            left = f" of about {target['calls'] + round(target['expected'])}" if target["expected"] else ""
            found = plural(len(target["culprits"]), "culprit")
            line = f"{label}: {target['state']}, {target['calls']}{left} calls, {found} so far"
            if target["verdict"] and target["state"] == "running":
                line = f"{label}: {found}, being repaired"
            if line not in self._said:
                say(line)
                self._said.add(line)


def _show(
    job: RemoteJob, targets: Sequence[TargetStatus], labels: Sequence[str], out: Path | None, form: Format
) -> dict[str, int]:
    """Print and write the job's results; returns the exit status of each target."""
    ended = dict(zip(labels, targets, strict=True))
    results = {label: job.fetched(target) for label, target in ended.items() if target["state"] == "done"}
    overview = relabelled(job.client.overview(job.id), labels) if len(targets) > 1 else None
    failures = {label: failure(target) for label, target in ended.items() if label not in results}
    for label, what in failures.items():
        say(f"{label}: {clean(str(what))}")
    unwritten = None
    if out is not None:
        if overview is not None:
            write_overview(overview, out)
        for label, result in results.items():
            try:
                write_files(result, out if overview is None else out / label)
            except (OnnxBisectError, OSError) as error:  # without the files, the results are still printed
                unwritten = unwritten or error
    files = "" if out is None or unwritten else str(out)
    if overview is None:
        sys.stdout.write(render(results[labels[0]].report, form, files=files))
    else:
        sys.stdout.write(render_overview(overview, form, files=files))
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
    codes = {label: exit_code(result) for label, result in results.items()}
    return codes | {label: what.exit_code for label, what in failures.items()}


def say(sentence: str) -> None:
    """Print a line on standard error."""
    print(f"onnx-bisect: {sentence}", file=sys.stderr, flush=True)


def interrupt() -> None:
    """Handle the first signal: end the wait by KeyboardInterrupt."""
    raise KeyboardInterrupt
