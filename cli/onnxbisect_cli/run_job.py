"""`onnx-bisect run`: searches, then reports on the screen and in files; of several targets or models a table, too."""

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from onnx_bisect.job_documents import Part
from onnxbisect.errors import BackendUnusableError, ModelError, ShortageError
from onnxbisect.language import english
from onnxbisect.report import words
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.overview import overview
from onnxbisect.report.parts import ModelPart as Row
from onnxbisect.report.parts import parts_table
from onnxbisect.report.reading import TypedCommand, bound_inputs
from onnxbisect.report.text import plural
from onnxbisect.verdict import Status
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.contract import Backend, Description, for_model, input_shapes
from onnxbisect_backends.probing.loaded_model import LoadedModel, demand_static
from onnxbisect_cli import reports
from onnxbisect_cli.bisection import SearchRequest, backend_of, bisected
from onnxbisect_cli.exit_status import ExitStatus, Interruption, stopping
from onnxbisect_cli.parameters import Format, demand_folder, demand_overview
from onnxbisect_cli.speech import say


def run(request: SearchRequest, out: Path | None, form: Format, exit_status: ExitStatus = ExitStatus.USUAL) -> int:
    """Diagnose the model and write the report to standard output; returns the exit status.

    Everything else goes to standard error. With `out`, the reports and culprits are also written to that folder.
    """
    if out is not None:
        demand_folder(out)
        request = replace(request, artifacts=reports.fresh_folder(out))
    result, interruption = bisected(request)
    unwritten = None
    if out is not None:
        try:
            reports.write_files(result, out)
        except OSError as error:  # on a full disk the report is still printed
            unwritten = error
    files = "" if out is None or unwritten else str(out)
    text = reports.render(result.report, form, files=files, typed=typed(request, files))
    if form is Format.TEXT:
        print_report(text, compiles={Status.PASS: True, Status.FAIL: False}.get(result.verdict))
    else:
        sys.stdout.write(text)
    sys.stdout.flush()
    if unwritten is not None:
        raise unwritten
    if interruption.number is not None:
        calls = plural(result.stats.compiler_calls, "compiler call")
        go_on = english("their verdicts are kept and the same command goes on from here")
        rest = go_on if request.cache else english("nothing is kept")
        say(f"interrupted after {calls}; {rest}.")
        return interruption.exit_code
    if out is None and result.culprits:
        say("--out DIR writes the reports and a model.onnx for each culprit.")
    if exit_status is ExitStatus.GIT_BISECT and result.verdict is Status.FAIL:
        return reports.CULPRITS  # also where a budget ended the search before it found one
    return reports.exit_code(result)


def typed(request: SearchRequest, files: str) -> TypedCommand:
    """The words of a `run` command that other commands repeat; `files` is the report's folder, or empty."""
    words = request.target_words
    if request.calibration is not None:  # answers are kept by samples: without them the diagnosis would begin anew
        words += ["--samples", str(request.calibration)]
    inputs = bound_inputs(request.input_shapes, request.input_values)
    return TypedCommand(
        model=str(request.model), target=words, inputs=inputs, command=request.command or (), files=files
    )


#: How a line begins, below the headline, and its style.
_STYLES = (
    ("  proven:", "green"),
    ("  bounded:", "yellow"),
    ("  unknown:", "yellow"),
    ("  next:", "bold"),
    ("        onnx-bisect ", "cyan"),
    ("  refused ", "red"),
    ("  unknown ", "yellow"),
    ("  compiles ", "green"),
)


def print_report(text: str, *, compiles: bool | None) -> None:
    """Write a report's lines to standard output; `compiles` is the verdict of its headline, None if there is none."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    console = Console(highlight=False)
    headline = {True: "bold green", False: "bold red", None: "bold yellow"}[compiles]
    for number, line in enumerate(text.splitlines()):
        found = (style for prefix, style in _STYLES if line.startswith(prefix))
        style = headline if number == 0 else next(found, "")
        console.print(Text(line, style=style), soft_wrap=True)


_BEFORE = "the run was interrupted before its turn"
_Known = tuple[Backend, Description] | str


def run_several(models: Sequence[Part], requests: Mapping[str, SearchRequest], out: Path | None, form: Format) -> int:
    """Run each request, by the label of its target, on each model. Returns the highest exit status.

    An unusable compiler or unreadable model does not stop the rest; a user's mistake stops all before any compile.
    """
    demand_overview(form)
    if out is not None:
        demand_folder(out)
    backends = {label: _described(request) for label, request in requests.items()}
    asking = _Asking(out=out, models=len(models), targets=len(requests))
    found = [asking.part(model, requests, backends) for model in models]
    files = "" if out is None or asking.unwritten else str(out)
    if len(models) > 1:
        columns = {label: request.backend or label for label, request in requests.items()}
        # of a target with a report, the description that all of its reports have
        columns |= {it.label: words.target(it.report["target"]) for part in found for it in part.asked if it.report}
        table = parts_table(found, columns)
        if out is not None and not asking.unwritten:
            reports.write_parts(table, out, several=len(requests) > 1)
        sys.stdout.write(reports.render_parts(table, form, several=len(requests) > 1, files=files))
    elif subject := found[0].subject:
        sys.stdout.write(reports.render_overview(overview(subject, found[0].asked), form, files=files))
    sys.stdout.flush()
    if asking.unwritten is not None:
        raise asking.unwritten
    if asking.interrupted:
        cached = next(iter(requests.values())).cache
        go_on = english("all verdicts are kept and the same command goes on from here")
        rest = go_on if cached else english("nothing is kept")
        say(f"interrupted; {rest}.")
        return Interruption(number=asking.interrupted).exit_code
    return asking.worst


@dataclass(kw_only=True)
class _Asking:
    """The searches in sequence. `interrupted` is the signal that ended them, 0 if none; `worst` the highest exit status
    so far; `unwritten` the error that kept a report from being written.
    """

    out: Path | None
    models: int
    targets: int
    number: int = 0
    worst: int = 0
    interrupted: int = 0
    unwritten: OSError | ShortageError | None = None

    def part(self, model: Part, requests: Mapping[str, SearchRequest], backends: Mapping[str, _Known]) -> Row:
        """Search one model on all targets. If the model is the only one, ModelError is raised when it is unreadable."""
        heads = [TargetReport(label=label, backend=request.backend or "") for label, request in requests.items()]
        if self.interrupted:
            return _part(model, None, [replace(head, reason=_BEFORE, ended=True) for head in heads])
        try:
            loaded = _loaded(model, {})
            if self.models == 1:
                for known in backends.values():
                    if not isinstance(known, str):
                        demand_static(loaded.model, *known)
                        for_model(known[0], loaded.model.proto.graph)
        except ModelError as error:
            if self.models == 1:
                raise
            say(f"{model.label}: {error}")
            self.worst = max(self.worst, error.exit_code)
            self.number += self.targets
            return _part(model, None, [replace(head, reason=str(error)) for head in heads])
        asked = [self._ask(head, model, loaded, requests[head.label], backends[head.label]) for head in heads]
        subject = AskedModel.of(loaded.model)
        if self.out is not None and self.targets > 1 and not self.unwritten:
            reports.write_overview(overview(subject, asked), self._folder(self.out, model))
        return _part(model, subject, asked)

    def _ask(
        self, head: TargetReport, model: Part, loaded: LoadedModel, request: SearchRequest, known: _Known
    ) -> TargetReport:
        asked = replace(head, reason=_BEFORE, ended=True)
        if self.interrupted:
            return asked
        self.number += 1
        kind, name = ("search", f"{model.label}, {head.label}")
        if self.models == 1:
            kind, name = "target", head.label
        elif self.targets == 1:
            kind, name = "model", model.label
        count = self.models * self.targets
        say(f"{kind} {self.number} of {count}, {name}")
        with stopping() as outside:
            try:
                if isinstance(known, str):
                    raise BackendUnusableError(known)
                if own := input_shapes(known[0]):  # this target binds other input shapes
                    loaded = _loaded(model, own)
                demand_static(loaded.model, *known)
                out = None if self.out is None else self._folder(self.out, model)
                if out is not None and self.targets > 1:
                    out /= head.label
                kept = None if out is None else reports.fresh_folder(out)
                request = replace(request, calibration=model.calibration, artifacts=kept)
                result, interruption = bisected(request, loaded)
                asked = replace(head, report=result.report)
                self.interrupted = interruption.number or 0
                self.worst = max(self.worst, reports.exit_code(result))
                if out is not None:
                    reports.write_files(result, out)
            except (BackendUnusableError, ModelError) as error:
                say(f"{name}: {error}")
                self.worst = max(self.worst, error.exit_code)
                asked = replace(head, reason=str(error))
            except (OSError, ShortageError) as error:  # on a full disk the other searches still run
                self.unwritten = error
                asked = asked if asked.report else replace(head, reason=str(error))
            except KeyboardInterrupt:  # outside of a search, which handles signals itself
                self.interrupted = outside.number or signal.SIGINT
        return asked

    def _folder(self, out: Path, model: Part) -> Path:
        return out if self.models == 1 else out / model.label


def _loaded(part: Part, own: Mapping[str, Sequence[int]]) -> LoadedModel:
    """The model; `own` are the shapes that a target binds."""
    shapes, sample = {**own, **part.input_shapes}, first_sample(part.calibration)
    return LoadedModel(part.model, shapes, input_values=part.input_values, sample=sample)


def _part(model: Part, subject: AskedModel | None, asked: Sequence[TargetReport]) -> Row:
    return Row(label=model.label, name=model.model.name, subject=subject, asked=tuple(asked))


def _described(request: SearchRequest) -> _Known:
    """The backend, or a sentence why it is unusable; OptionError for a user's mistake."""
    try:
        backend = backend_of(request)
        return backend.check() or (backend, backend.describe())
    except BackendUnusableError as error:
        return str(error)
