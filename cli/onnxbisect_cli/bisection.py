"""Puts one search together: model, backend, verdict base, driver. The composition root of `onnx-bisect run`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from onnxbisect.answer import Answer
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.errors import BackendUnusableError, OptionError, ShortageError
from onnxbisect.job import Job
from onnxbisect.preflight import NEWER_THAN_TOOL
from onnxbisect.search import plan
from onnxbisect.shortage import shortage
from onnxbisect.unitset import UnitSet
from onnxbisect_backends import registry
from onnxbisect_backends.command import CommandBackend
from onnxbisect_backends.contract import Backend, Limits
from onnxbisect_backends.probing.identity import search_identity
from onnxbisect_backends.probing.inquiry import Inquiry, inquire
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_backends.process import kill_running
from onnxbisect_backends.working_folder import working_folder
from onnxbisect_cli.driver import Budget, Driver
from onnxbisect_cli.progress import progress
from onnxbisect_cli.signals import Interruption, stopping
from onnxbisect_cli.sqlite_base import default_path, open_base
from onnxbisect_cli.verdict_base import InMemoryVerdictBase, VerdictBase


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks for. Exactly one of `backend` (a name or a TOML file) and `command` names the compiler.

    `keep` reads and writes the verdict base of the user; `with_files` sees to it that every culprit's own file was
    compiled. `seconds` bounds one compile, None leaves it to the backend. `recheck` asks deciding questions until
    the compiler agrees with itself. `calibration` holds samples of the model's inputs, for targets that want some.
    """

    model: Path
    backend: str | None = None
    command: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    jobs: int = 1
    budget: Budget = field(default_factory=Budget)
    seconds: float | None = None
    keep: bool = True
    with_files: bool = False
    recheck: bool = False
    calibration: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """A search that ended. `culprit_files` has, for each culprit in order, its files by name (none where no compile
    of that very file was seen to fail); paths in it live as long as the `bisected` context.
    """

    job: Job
    interruption: Interruption
    culprit_files: tuple[Mapping[str, Path | bytes], ...]


@contextmanager
def bisected(request: Request, intake: Intake | None = None) -> Iterator[Bisected]:
    """Search, in a working folder that is gone when the context ends. Raises OnnxBisectError before any compile.

    `intake` is that of the request's model, where it was read before.
    """
    backend = backend_of(request)
    if complaint := backend.check():
        raise BackendUnusableError(complaint)
    inquiry = inquire(intake or Intake(request.model, request.input_shapes), backend, request.calibration)
    if request.calibration is not None and inquiry.samples is None:
        _say(f"{backend.name} takes no input samples; --calibration changes nothing for it.")
    base = _base(request, inquiry)
    with working_folder() as folder:
        try:
            yield _search(request, backend, inquiry, base, folder)
        finally:
            if base.problem is not None:
                _say(base.problem)
            base.close()


def _search(request: Request, backend: Backend, inquiry: Inquiry, base: VerdictBase, folder: Path) -> Bisected:
    limits = Limits() if request.seconds is None else Limits(seconds=request.seconds)
    files = inquiry.culprit_files(folder)
    for finding in inquiry.findings:
        if finding.id in NEWER_THAN_TOOL:  # said before the search, which may take hours: it makes another one of it
            _say(f"{finding.detail}. {finding.why} {finding.fix}")

    def confirm(diagnosis: Diagnosis, answers: dict[UnitSet, Answer]) -> dict[UnitSet, str]:
        return files.unseen(diagnosis, answers) if request.with_files else {}

    with progress(inquiry.universe) as observer:
        driver = Driver(
            universe=inquiry.universe,
            planner=partial(plan, recheck=request.recheck),
            probes=inquiry.prober(backend, folder, limits),
            base=base,
            key=inquiry.key,
            observer=observer,
            jobs=request.jobs,
            budget=request.budget,
            confirm=confirm,
            kill_compiles=kill_running,
        )
        with stopping(driver.stop) as interruption:
            try:
                ended = driver.run()
            except Exception as error:
                if (short := shortage(error)) is None:
                    raise
                kept = " Verdicts so far are kept." if request.keep and base.problem is None else ""
                raise ShortageError(f"{short}{kept} Run it again when there is room.") from error
    found = ended.diagnosis.culprits if request.with_files else ()
    return Bisected(
        job=inquiry.job(ended.diagnosis, ended.records, ended.stats),
        interruption=interruption,
        culprit_files=tuple(files.files(culprit, ended.answers) for culprit in found),
    )


def backend_of(request: Request) -> Backend:
    """The backend that the request names; OptionError where it does not, or not rightly."""
    if request.command:
        if request.backend is not None or request.options:
            raise OptionError("A command after '--' is the backend itself: leave --backend and --option out.")
        return CommandBackend(request.command)
    if request.backend is None:
        raise OptionError(
            "No compiler is named: give --backend NAME ('onnx-bisect backends' lists them) or a command after '--'."
        )
    return registry.make(request.backend, dict(request.options))


def _base(request: Request, inquiry: Inquiry) -> VerdictBase:
    if not request.keep:
        return InMemoryVerdictBase()
    search = search_identity(inquiry.identity, inquiry.intake.model.sha256, inquiry.universe)
    return open_base(default_path(), target=inquiry.identity, search=search)


def _say(sentence: str) -> None:
    print(f"onnx-bisect: {sentence}", file=sys.stderr)
