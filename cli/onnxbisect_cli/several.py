"""`onnx-bisect run` with several compilers: one intake, one search after the other, a report for each, an overview."""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxbisect.errors import BackendUnusableError, ShortageError
from onnxbisect.report.overview import Asked, Subject, overview
from onnxbisect_backends.contract import Backend, Description
from onnxbisect_backends.probing.intake import Intake, demand_static
from onnxbisect_cli.arguments import Format
from onnxbisect_cli.bisection import Request, backend_of, bisected
from onnxbisect_cli.reports import demand_overview, render_overview, write_overview
from onnxbisect_cli.run_job import UNRESOLVED, demand_folder, exit_code, write_files
from onnxbisect_cli.signals import Interruption, stopping

_BEFORE = "the run was interrupted before its turn"


def run(requests: Mapping[str, Request], out: Path | None, form: Format) -> int:
    """The requests by label, all about one model. Returns the exit status: the worst of the targets'.

    One that cannot be used does not stop the others; what the user got wrong stops all before any compile.
    """
    demand_overview(form)
    if out is not None:
        demand_folder(out)
    backends = {label: _described(request) for label, request in requests.items()}
    first = next(iter(requests.values()))
    intake = Intake(first.model, first.input_shapes)
    for known in backends.values():
        if not isinstance(known, str):
            demand_static(intake.model, *known)
    asking = _Asking(intake=intake, out=out, count=len(requests))
    for label, request in requests.items():
        asking.ask(label, request, backends[label])
    table = overview(Subject.of(intake.model), asking.asked)
    if out is not None and asking.unwritten is None:
        write_overview(table, out)
    sys.stdout.write(render_overview(table, form, files="" if out is None or asking.unwritten else str(out)))
    sys.stdout.flush()
    if asking.unwritten is not None:
        raise asking.unwritten
    if asking.interrupted:
        kept = "all verdicts are kept and the same command goes on from here" if first.cache else "nothing is kept"
        print(f"onnx-bisect: interrupted; {kept}.", file=sys.stderr)
        return Interruption(number=asking.interrupted).exit_code
    return asking.worst


@dataclass(kw_only=True)
class _Asking:
    """The targets one after the other. `interrupted` is the signal that ended it, 0 if none did; `worst` the highest
    exit status so far; `unwritten` what kept a report from being written.
    """

    intake: Intake
    out: Path | None
    count: int
    asked: list[Asked] = field(default_factory=list)
    worst: int = 0
    interrupted: int = 0
    unwritten: OSError | ShortageError | None = None

    def ask(self, label: str, request: Request, known: tuple[Backend, Description] | str) -> None:
        """Adds one to `asked`, whatever happens."""
        head = Asked(label=label, backend=request.backend or "")
        if self.interrupted:
            self.asked.append(replace(head, reason=_BEFORE, ended=True))
            return
        number = len(self.asked) + 1
        print(f"onnx-bisect: target {number} of {self.count}, {label}", file=sys.stderr, flush=True)
        with stopping(_interrupt) as outside:
            try:
                if isinstance(known, str):
                    raise BackendUnusableError(known)
                self._search(head, request)
            except BackendUnusableError as error:
                print(f"onnx-bisect: {label}: {error}", file=sys.stderr)
                self.worst = UNRESOLVED
                self.asked.append(replace(head, reason=str(error)))
            except (OSError, ShortageError) as error:  # a full disk must not cost the other targets
                self.unwritten = error
                self.asked += [replace(head, reason=str(error))] * (len(self.asked) < number)
            except KeyboardInterrupt:  # before or after its search, which minds signals itself
                self.interrupted = outside.number or signal.SIGINT
                self.asked += [replace(head, reason=_BEFORE, ended=True)] * (len(self.asked) < number)

    def _search(self, head: Asked, request: Request) -> None:
        result, interruption = bisected(request, self.intake)
        self.interrupted = interruption.number or 0
        self.worst = max(self.worst, exit_code(result))
        self.asked.append(replace(head, report=result.report))
        if self.out is not None:
            write_files(result, self.out / head.label)


def _described(request: Request) -> tuple[Backend, Description] | str:
    """The backend, or the sentence that says why it cannot be used; OptionError is the user's to mend."""
    try:
        backend = backend_of(request)
        return backend.check() or (backend, backend.describe())
    except BackendUnusableError as error:
        return str(error)


def _interrupt() -> None:
    raise KeyboardInterrupt
