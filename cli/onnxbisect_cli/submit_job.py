"""`onnx-bisect submit`: the diagnosis of `run`, made by a server, with the same output and exit statuses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from onnx_bisect import Client, JobTerms
from onnx_bisect.client import failure
from onnx_bisect.job_documents import JobStatus
from onnxbisect.input_value import InputValue
from onnxbisect.language import _
from onnxbisect.report.text import plural
from onnxbisect_cli.exit_status import stopping
from onnxbisect_cli.parameters import Chosen, Format, demand_folder, demand_overview
from onnxbisect_cli.speech import say, spoken


@dataclass(frozen=True, kw_only=True)
class SubmitRequest:
    """The user's request. `calibration` is a sample or a folder of samples; `terms` apply to `targets`."""

    model: Path
    server: str
    token: str = field(repr=False)
    targets: Sequence[Chosen]
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: Mapping[str, InputValue] = field(default_factory=dict)
    calibration: Path | None = None
    terms: JobTerms


def submit(request: SubmitRequest, *, wait: bool, out: Path | None, form: Format) -> int:
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
            input_values=request.input_values,
            calibration=request.calibration,
            **request.terms,
        )
        if not wait:
            print(job.url)
            return 0
        with stopping() as interruption:
            try:
                say(f"job {job.id}: {job.page}")
                Thread(target=_get_ready, daemon=True).start()
                ended = job.wait(ProgressLines(labels))
            except KeyboardInterrupt:
                job.cancel()
                say("interrupted; the job is cancelled, the verdicts that it has are kept.")
                return interruption.exit_code
        if ended["state"] != "done":
            raise failure(ended)
        from onnxbisect_cli import submit_results

        codes = submit_results.show(job, ended["targets"], labels, out, form)
        folders = {label: out if out is None or len(labels) == 1 else out / label for label in labels}
        if request.terms.get("repair") is not None:
            repairs = submit_results.show_repairs(
                request.model, job, ended["targets"], folders, verbose=form is Format.TEXT
            )
            codes = {label: repairs.get(label, code) for label, code in codes.items()}
        if request.terms.get("precision") is not None:
            codes |= submit_results.show_precision(job, ended["targets"], folders, verbose=form is Format.TEXT)
        return max(codes.values())


def _get_ready() -> None:
    """Import what shows the results, and compile its templates, while the server works."""
    from onnxbisect.report.html import compile_all, environment
    from onnxbisect_cli import submit_results  # noqa: F401 - see above

    compile_all(environment())


class ProgressLines:
    """Prints a line on standard error whenever the job's progress changes."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._said: set[str] = set()

    def __call__(self, job: JobStatus) -> None:
        """Print the job's progress."""
        for label, target in zip(self._labels, job["targets"], strict=True):
            with spoken():
                found = plural(len(target["culprits"]), "culprit")
                if target["verdict"] and target["state"] == "running":
                    precision = target.get("precision")
                    if precision is not None and precision["state"] == "running":
                        line = _("{label}: {found}, precision is measured", label=label, found=found)
                    else:
                        line = _("{label}: {found}, being repaired", label=label, found=found)
                else:
                    calls = plural(target["calls"], "compiler call")
                    if target["expected"]:
                        calls = _(
                            "{calls} of about {expected}",
                            calls=calls,
                            expected=target["calls"] + round(target["expected"]),
                        )
                    state = _(target["state"])
                    line = _(
                        "{label}: {state}, {calls}, {found} so far", label=label, state=state, calls=calls, found=found
                    )
            if line not in self._said:
                say(line)
                self._said.add(line)
