"""Puts one search together: model, backend, verdict base, driver. The composition root of `onnx-bisect run`."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from onnxbisect.cut import Cutter, bare_ends, dtype_needs, told_apart, write
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.dressing import Dressing
from onnxbisect.errors import BackendUnusableError, ModelError, OptionError
from onnxbisect.job import Job, Target
from onnxbisect.key import Keyer
from onnxbisect.model import Model, load
from onnxbisect.preflight import NEWER_THAN_TOOL, Finding, Reader, preflight
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect_backends import registry
from onnxbisect_backends.command import CommandBackend
from onnxbisect_backends.contract import Backend, Description, Limits
from onnxbisect_backends.process import kill_running
from onnxbisect_cli.answer import Answer
from onnxbisect_cli.culprit_files import CulpritFiles
from onnxbisect_cli.driver import Budget, Driver
from onnxbisect_cli.prober import Prober, WriteProbe
from onnxbisect_cli.progress import progress
from onnxbisect_cli.sampling import Sampling, sampling
from onnxbisect_cli.signals import Interruption, stopping
from onnxbisect_cli.sqlite_base import default_path, open_base
from onnxbisect_cli.validity import Validity
from onnxbisect_cli.verdict_base import InMemoryVerdictBase, VerdictBase, search_identity, target_identity


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


class Intake:
    """A model, read once however many targets are asked about it, with the cutter that they share."""

    def __init__(self, path: Path, input_shapes: Mapping[str, Sequence[int]]) -> None:
        """Raises ModelError."""
        self.model = load(path, input_shapes=input_shapes)
        self.cutter = Cutter(self.model)
        self.validity = Validity(self.model.path, self.model.universe.everything)


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
    intake = intake or Intake(request.model, request.input_shapes)
    model = intake.model
    description = backend.describe()
    demand_static(model, backend, description)
    samples = sampling(model, request.calibration, description.samples, backend.name)
    target = Target(
        backend=backend.name,
        tool=description.tool,
        version=description.version,
        options=backend.options,
        calibration="" if samples is None else samples.digest,
    )
    known = told_apart(model.universe, bare_ends(model, description.dressing.covered))
    universe = replace(known, needs=dtype_needs(model, description.dressing), advertised=description.ops)
    base = _base(request, model, universe, target, description)
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-", ignore_cleanup_errors=True) as name:
        try:
            yield _search(request, backend, description, intake, universe, target, base, samples, Path(name))
        finally:
            if base.problem is not None:
                print(f"onnx-bisect: {base.problem}", file=sys.stderr)
            base.close()


def _search(
    request: Request,
    backend: Backend,
    description: Description,
    intake: Intake,
    universe: Universe,
    target: Target,
    base: VerdictBase,
    samples: Sampling | None,
    folder: Path,
) -> Bisected:
    model = intake.model
    write_probe = probe_writer(intake, description.dressing)
    files = CulpritFiles(write_probe, folder)
    apart = bare_ends(model, description.dressing.covered)
    keyer = Keyer(model, weights=description.weights_matter, apart=apart)
    findings = preflight(model, _reader(description))
    _warn(findings)

    def confirm(diagnosis: Diagnosis, answers: dict[UnitSet, Answer]) -> Sequence[UnitSet]:
        return files.unseen(diagnosis, answers) if request.with_files else ()

    with progress(universe) as observer:
        driver = Driver(
            universe=universe,
            planner=partial(plan, recheck=request.recheck),
            probes=Prober(
                write=write_probe,
                backend=backend,
                limits=Limits() if request.seconds is None else Limits(seconds=request.seconds),
                objection=intake.validity.objection,
                folder=folder,
                samples=None if samples is None else samples.write,
            ),
            base=base,
            key=keyer.key,
            observer=observer,
            jobs=request.jobs,
            budget=request.budget,
            confirm=confirm,
            kill_compiles=kill_running,
        )
        with stopping(driver.stop) as interruption:
            ended = driver.run()
    job = Job(
        model=model if samples is None else replace(model, notes=(*model.notes, *samples.notes)),
        target=target,
        diagnosis=ended.diagnosis,
        probes=ended.records,
        preflight=findings,
        stats=ended.stats,
    )
    found = ended.diagnosis.culprits if request.with_files else ()
    return Bisected(
        job=job,
        interruption=interruption,
        culprit_files=tuple(files.files(culprit, ended.answers) for culprit in found),
    )


def _reader(description: Description) -> Reader:
    return Reader(
        tool=description.tool,
        newest_ir=description.newest_ir,
        newest_opset=description.newest_opset,
        dressing=description.dressing,
    )


def _warn(findings: Sequence[Finding]) -> None:
    """Say before the search, which may take hours, what would make another search of it."""
    for finding in findings:
        if finding.id in NEWER_THAN_TOOL:
            print(f"onnx-bisect: {finding.detail}. {finding.why} {finding.fix}", file=sys.stderr)


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


def demand_static(model: Model, backend: Backend, description: Description) -> None:
    """ModelError where the target needs dimensions that are not bound."""
    if description.dynamic_shapes or not model.unbound:
        return
    name = model.unbound[0]
    shape = next(value.type.tensor_type.shape for value in model.proto.graph.input if value.name == name)
    symbols = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in shape.dim]
    dims = [symbol if symbol.isdigit() else "1" for symbol in symbols]
    others = f" (so have {len(model.unbound) - 1} other inputs)" if len(model.unbound) > 1 else ""
    raise ModelError(
        f"Input '{name}' has dynamic dimensions, [{', '.join(symbols)}]{others}, and {backend.name} needs static ones; "
        f"bind them, for example with --input-shape {name}={','.join(dims)}."
    )


def _base(request: Request, model: Model, universe: Universe, target: Target, description: Description) -> VerdictBase:
    if not request.keep:
        return InMemoryVerdictBase()
    identity = target_identity(target, description.dressing, description.environment)
    return open_base(default_path(), target=identity, search=search_identity(identity, model.sha256, universe))


def probe_writer(intake: Intake, dressing: Dressing) -> WriteProbe:
    """Writes pieces of the model as a target wants them."""

    def write_probe(units: UnitSet, path: Path) -> Mapping[str, str]:
        piece = intake.cutter.cut(units, dressing)
        write(piece, intake.model, path)
        return piece.renamed

    return write_probe
