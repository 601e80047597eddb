"""The model process's implementation of `protocol.ModelProcess`."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from onnx_bisect.measuring_precision import has_arithmetic
from onnx_bisect.precision_subject import SCREEN, PrecisionQuestion
from onnx_bisect.steps.changed_files import may_be_changed
from onnx_bisect.steps.confirming import confirmed
from onnx_bisect.steps.known_target import inspect_for, known_target
from onnxbisect.answer import Answer
from onnxbisect.diagnosis import CompilesAfter, CompletedDiagnosis
from onnxbisect.drawing.graph import network_of
from onnxbisect.drawing.network import network_bytes
from onnxbisect.errors import BackendUnusableError, OnnxBisectError, OptionError
from onnxbisect.json_form import to_json
from onnxbisect.model import Established
from onnxbisect.precision.wanted import wanted
from onnxbisect.preflight import Finding, inspect, inspection_document
from onnxbisect.remedies.advisor import replacements
from onnxbisect.report.document import document
from onnxbisect.report.files import culprit_dirs, put
from onnxbisect.search import plan
from onnxbisect.session import SearchRecord
from onnxbisect.unitset import UnitSet
from onnxbisect_backends import registry
from onnxbisect_backends.calibration import first_sample
from onnxbisect_backends.contract import Backend, Limits, computes_mixed, input_shapes
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.boundary_limits import adopt_limits, learn_limits
from onnxbisect_backends.probing.boundary_traits import traits_of
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.prober import Prober, ProbeResult
from onnxbisect_backends.probing.search_context import SearchContext, sampling, search_context
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_worker.model_requests import protocol
from onnxbisect_worker.model_requests.layout import PreparedFiles, demanded
from onnxbisect_worker.model_requests.limits import Bounds, UnboundBackend, UnboundQuantiser
from onnxbisect_worker.model_requests.precision import ToldRecord, search
from onnxbisect_worker.model_requests.repair import (
    ChangedModels,
    RepairWork,
    UnansweredError,
    answers_from,
    changed_files_came_to,
)

#: Most bytes of known values stored with a prepared search; processes recompute larger ones.
_MOST_KNOWN = 16 << 20


class ModelWork:
    """One model and one target, in a working folder. What was read stays for the next request."""

    def __init__(
        self,
        setup: protocol.Setup,
        folder: Path,
        bounds: Bounds,
        layout: PreparedFiles,
        send: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """`send` sends a message to the worker that waits for an answer."""
        self._send = send
        self._setup = setup
        self._layout = layout
        self._case = setup.case
        self._spec = setup.case.spec
        self._folder = folder
        self._bounds = bounds
        #: What gave no numbers in a search for precise nodes that this process goes on with.
        self._silent: dict[tuple[str, frozenset[str]], str] = {}

    def prepare(self) -> protocol.Prepared:
        learn_limits(self._backend, traits_of(self._loaded.model), self._folder, self._limits, kept=True)
        context = self._context = self._search_context()
        established = context.loaded.model.established
        known = sum(value.nbytes for value in established.known.values())
        # the compiler's messages may name options that it should be asked with
        names_options = OtherOptions.in_messages(self._case.backend, self._case.options) is not None
        return protocol.Prepared(
            target=context.target,
            description=context.description,
            universe=context.universe,
            identity=context.identity,
            changeable=may_be_changed(context) or names_options,
            forms_differ=context.forms_differ,
            established=established.to_bytes() if known <= _MOST_KNOWN else b"",
        )

    def draw(self) -> str:
        return network_bytes(network_of(self._loaded.model)).decode()

    def inspect(self) -> dict[str, Any]:
        model = self._loaded.model
        if not self._case.backend:
            found = inspect(model)
        else:
            backend = demanded(self._layout.backend)
            with self._bounds.lifted():
                target = known_target(backend)
            found = inspect_for(model, target)
        named = replace(found, name=self._case.model_name, findings=self._advised(found.findings))
        return inspection_document(named)

    def key(self, units: UnitSet, *, as_part: bool = False) -> str:
        return self._context.key(units, as_part=as_part)

    def ask(self, units: UnitSet, *, seconds_left: float | None, as_part: bool = False) -> ProbeResult:
        return self._prober.ask(units, seconds_left, as_part=as_part)

    def digests(self, pieces: Sequence[UnitSet]) -> list[str]:
        with TemporaryDirectory(dir=self._folder) as name:
            return list(map(self._context.culprit_files(Path(name)).digest, pieces))

    def report(
        self,
        begun: protocol.StepProgress,
        *,
        logs: Mapping[str, str],
        compiles_after: CompilesAfter | None,
        file_after: str,
        neighbours: int,
    ) -> protocol.ModelQuestion | protocol.ReportOutcome:
        """See `ModelProcess.report`. The files are in the working folder under generated names."""
        verdicts = SearchRecord(records=begun.answers).verdicts
        spec = self._spec
        diagnosis = plan(self._context.universe, verdicts, recheck=spec.recheck, as_is=spec.as_is).diagnosis
        if compiles_after is not None:
            diagnosis = replace(diagnosis, culprits=(), needs_context=())
        job = self._context.job(diagnosis, begun.answers, begun.stats)
        job = replace(job, compiles_after=compiles_after, file_after=file_after)
        if neighbours:
            known = answers_from(begun, self._context.identity)
            with TemporaryDirectory(dir=self._folder) as name:
                try:
                    job = confirmed(job, self._loaded, known, Path(name), most=neighbours)
                except UnansweredError as error:
                    return replace(error.question, files=self._put(error.question.files))
        latest = {
            it.units: Answer(verdict=it.verdict, file_sha256=it.file_sha256, log=logs.get(it.probe_id, ""))
            for it in sorted(begun.answers, key=lambda it: it.attempt)
        }
        written = document(self._named(job), replacements(job))
        files: dict[str, Path] = {}
        with TemporaryDirectory(dir=self._folder) as name:
            culprits = self._context.culprit_files(Path(name))
            for entry, place, culprit in zip(
                written["culprits"], culprit_dirs(written), diagnosis.culprits, strict=True
            ):
                of_culprit = culprits.files(culprit, latest)
                if not of_culprit:  # the search ended before that file was seen to fail
                    entry["repro"] = None
                files |= self._put({f"{place}/{file}": content for file, content in of_culprit.items()})
        return protocol.ReportOutcome(document=written, files=files)

    def change(self, begun: protocol.StepProgress) -> protocol.ModelQuestion | protocol.ChangeOutcome:
        """See `ModelProcess.change`. The files are in the working folder under generated names."""
        with TemporaryDirectory(dir=self._folder) as name:
            came = changed_files_came_to(self._changed_models, begun, Path(name))
            return replace(came, files=self._put(came.files))

    def repair(self, begun: protocol.StepProgress) -> protocol.ModelQuestion | protocol.RepairOutcome:
        """See `ModelProcess.repair`. The files are where those of `change` are."""
        if self._spec.repair is None:
            raise OnnxBisectError("No repair was asked for.")
        work = RepairWork(
            models=self._changed_models,
            spec=self._spec.repair,
            samples=self._laid_out("samples", self._spec.repair.samples, "sample"),
            model_name=self._case.model_name,
            named=self._named,
            others=self._others,
            calibration=self._calibration,
        )
        with TemporaryDirectory(dir=self._folder) as name:
            came = work.run(begun, Path(name))
            return replace(came, files=self._put(came.files))

    def precision(
        self, known: Sequence[MeasuredSet], *, calls: int | None, seconds: float | None
    ) -> protocol.PrecisionOutcome:
        """See `ModelProcess.precision`. The files are where those of `change` are.

        A target without arithmetic of its own here gets that of onnxruntime.
        """
        terms, samples = self._spec.precision, self._calibration
        if terms is None or samples is None:
            raise OnnxBisectError("No search for nodes that must stay precise was asked for, or it has no samples.")
        self._demand_same_compiler()
        own = demanded(self._layout.backend)
        if not has_arithmetic(own):
            own = registry.make(SCREEN, {})
        want = wanted(terms.metric, terms.at_least, terms.at_most)
        question = PrecisionQuestion(
            model=self._loaded.model,
            name=self._case.model_name,
            backend=(UnboundQuantiser if computes_mixed(own) else UnboundBackend)(own, self._bounds),
            samples=samples,
            low=terms.low,
            want=want,
            limits=self._limits,
        )
        silent, self._silent = self._silent, {}
        record = ToldRecord(known, want, silent, lambda measured: self._send({"told": to_json(measured)}))
        with TemporaryDirectory(dir=self._folder) as name, self._bounds.untimed():
            out = Path(name)
            report = search(question, out, record, calls=calls, seconds=seconds)
            if report is None:
                self._silent = silent
                return protocol.PrecisionOutcome()
            files = self._put({f"precision/{it.name}": it for it in out.iterdir() if it.is_file()})
        return protocol.PrecisionOutcome(
            ending=report.ending,
            headline=report.headline,
            keep=len(report.members),
            asks=len(report.asks),
            files=files,
        )

    def _others(self, messages: Sequence[str]) -> Iterator[tuple[Mapping[str, str], Backend]]:
        wanted = None if self._spec.repair is None else self._spec.repair.alternatives
        if wanted is not None:
            others = OtherOptions.of(self._case.backend, self._case.options, wanted)
            for changed, backend in others.settings(messages):
                yield changed, UnboundBackend(backend, self._bounds)

    @property
    def _changed_models(self) -> ChangedModels:
        return ChangedModels(
            onnx=self._case.onnx,
            context=self._context,
            context_of=lambda loaded, piece: search_context(
                loaded, self._backend, None if piece else self._calibration, piece=piece
            ),
            context_with=lambda loaded, backend: search_context(
                loaded, UnboundBackend(backend, self._bounds), self._calibration
            ),
            options=OtherOptions.in_messages(self._case.backend, self._case.options),
            as_is=self._spec.as_is,
            goes_on=self._spec.repair is None,
            recheck=self._spec.recheck,
        )

    def _put(self, files: Mapping[str, Path | bytes]) -> dict[str, Path]:
        """Put the files into the working folder under generated names; returns these."""
        return {name: Path(put(self._folder / uuid4().hex, content).name) for name, content in files.items()}

    def _named(self, job: CompletedDiagnosis) -> CompletedDiagnosis:
        """The job with the model's original file name, since the file on disk has a generated one."""
        model = replace(job.model, path=Path(self._case.model_name))
        return replace(job, model=model, preflight=self._advised(job.preflight))

    def _advised(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings with the model's original file name in their commands."""
        ours, theirs = (shlex.quote(name) for name in (self._loaded.model.path.name, self._case.model_name))
        return tuple(replace(it, fix=it.fix.replace(f" fix {ours}`", f" fix {theirs}`")) for it in findings)

    def plain(self, text: str) -> str:
        """The sentence without paths of this machine and options of the command line."""
        for folder in ("calibration", "samples"):
            for option in ("--calibration", "--samples"):
                text = text.replace(f"{option} {self._folder / folder}", f"The job's {folder}")
        model = self._layout.model
        return text.replace(str(model), self._case.model_name) if isinstance(model, Path) else text

    @cached_property
    def _loaded(self) -> LoadedModel:
        raw = b"" if self._prepared is None else self._prepared.established
        established = Established.from_bytes(raw) if raw else None
        backend = self._named_backend
        shapes = {**({} if backend is None else input_shapes(backend)), **self._spec.input_shapes}
        return LoadedModel(
            demanded(self._layout.model),
            shapes,
            input_values=self._spec.input_values,
            most_nodes=self._setup.nodes,
            established=established,
            sample=None if established is not None else first_sample(self._calibration),
            doubted=self._spec.doubted,
        )

    @property
    def _named_backend(self) -> Backend | None:
        """The backend with the job's options, even without its compiler; None if they are wrong."""
        return None if isinstance(self._layout.backend, Exception) else self._layout.backend

    @cached_property
    def _prepared(self) -> protocol.Prepared | None:
        name = self._case.prepared
        return None if name is None else protocol.Prepared.from_bytes(self._setup.paths[name].read_bytes())

    @cached_property
    def _calibration(self) -> Path | None:
        """The folder of the calibration samples."""
        return self._laid_out("calibration", self._spec.calibration, "calibration file")

    def _laid_out(self, folder_name: str, files: Mapping[str, str], what: str) -> Path | None:
        """A folder with these files; None if there are none."""
        folder = self._folder / folder_name
        for name, path in self._setup.paths_of(files).items():
            if Path(name).name != name or name == ".." or not name.isprintable():
                raise OptionError(f"A {what} cannot be called {name!r}: give it a name without folders.")
            folder.mkdir(exist_ok=True)
            link = folder / name
            if not link.is_symlink():
                link.symlink_to(path)
        return folder if files else None

    @cached_property
    def _backend(self) -> UnboundBackend:
        backend = UnboundBackend(demanded(self._layout.backend), self._bounds)
        if complaint := backend.check():
            raise BackendUnusableError(complaint)
        if self._prepared is not None:
            adopt_limits(backend, self._prepared.description)
        return backend

    def blamed(self, error: BackendUnusableError) -> BackendUnusableError:
        """ToolBrokenError if the compiler also fails without the job's options."""
        if isinstance(error, protocol.OtherVersionError):
            return error
        try:
            tool = UnboundBackend(registry.make(self._case.backend, {}), self._bounds)
            complaint = tool.check()
            if complaint is None:
                tool.describe()
        except BackendUnusableError as found:
            complaint = str(found)
        except OnnxBisectError:  # the backend requires options
            complaint = None
        return error if complaint is None else protocol.ToolBrokenError(complaint)

    @cached_property
    def _prober(self) -> Prober:
        self._demand_same_compiler()
        return self._context.prober(self._backend, self._folder, self._limits)

    def _demand_same_compiler(self) -> None:
        """Raises OtherVersionError if this compiler is not the one that the search began with."""
        if self._case.prepared is not None:
            here, begun = self._search_context(), self._context
            if here.identity != begun.identity:
                raise protocol.OtherVersionError(
                    f"This worker has {here.target.tool} {here.target.version}, and the search began with "
                    f"{begun.target.tool} {begun.target.version}, or with other files or options of it: let all "
                    f"workers of a backend have the same, and start the job again."
                )

    @property
    def _limits(self) -> Limits:
        """The limits of one compile."""
        seconds = self._setup.compile_seconds
        if self._spec.timeout is not None:
            seconds = min(self._spec.timeout, seconds)
        memory, confinement = self._setup.compile_memory, self._setup.confinement
        return replace(Limits(), seconds=seconds, memory_bytes=memory, confinement=confinement)

    def _search_context(self) -> SearchContext:
        """The backend is checked first, as in `run`: without a compiler nothing else matters."""
        backend = self._backend
        return search_context(self._loaded, backend, self._calibration, piece=self._spec.piece)

    @cached_property
    def _context(self) -> SearchContext:
        """The context that `prepare` made; in a later process the stored one, which needs no compiler."""
        stored, model = self._prepared, self._loaded.model
        if stored is None:
            raise OnnxBisectError("The search was not prepared: start the job again.")
        if stored.universe.names != model.universe.names:
            raise protocol.OtherVersionError(
                "The search was begun by another version of onnx-bisect, which reads the model in another way: start "
                "the job again."
            )
        return SearchContext(
            loaded=self._loaded,
            description=stored.description,
            target=stored.target,
            universe=stored.universe,
            samples=sampling(model, self._calibration, stored.description.samples, self._named_backend),
            piece=self._spec.piece,
        )
