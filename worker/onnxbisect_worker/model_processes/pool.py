"""The model processes of a worker: started on demand, kept for the next request, used by one thread each."""

import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Condition, Lock
from typing import Any, TypeVar, cast, get_type_hints
from uuid import uuid4

from onnxbisect.diagnosis import CompilesAfter
from onnxbisect.errors import OnnxBisectError
from onnxbisect.input_value import InputValues
from onnxbisect.json_form import from_json, to_json
from onnxbisect.unitset import UnitSet
from onnxbisect_backends import registry
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.files import FileStore
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_processes.confinement import confinement, environment
from onnxbisect_worker.model_processes.process import ChildProcess, ForkServer
from onnxbisect_worker.model_requests import protocol
from onnxbisect_worker.model_requests.layout import remove

#: Allowed names of the files of each outcome.
_NAMES: Mapping[type[protocol.StepOutcome], re.Pattern[str]] = {
    protocol.ReportOutcome: re.compile(r"culprits/[0-9]{2,}-[A-Za-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*"),
    protocol.RepairOutcome: re.compile(r"repair/[a-z]+\.(onnx|json|md)"),
    protocol.PrecisionOutcome: re.compile(r"precision/[a-z_0-9.]+\.(json|md|html|svg|onnx|data|qtable|yaml|txt)"),
    protocol.ModelQuestion: re.compile(r"model\.(onnx|data)"),
    protocol.ChangeOutcome: re.compile(r"model\.onnx"),
}

T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound=protocol.StepOutcome)


class ModelClient:
    """A `ModelProcess` that starts with its first request."""

    def __init__(self, case: protocol.Case, settings: Settings, files: FileStore, server: ForkServer) -> None:
        self.case = case
        #: Bytes of the files that its process reads, about its memory; 0 before it starts.
        self.size = 0
        #: How many requests it was sent.
        self.requests = 0
        self._server = server
        self._settings = settings
        self._files = files
        self._process: ChildProcess | None = None
        self._killed = False
        self._starting = Lock()

    @property
    def usable(self) -> bool:
        """Whether its process can take requests."""
        return self._process is not None and self._process.alive

    def prepare(self) -> protocol.Prepared:
        """See `ModelProcess.prepare`. Afterwards it also serves the prepared case that is returned."""
        prepared = self._ask(protocol.Prepared, "prepare")
        self.case = replace(self.case, prepared=sha256(prepared.to_bytes()).hexdigest())
        return prepared

    def draw(self) -> str:
        return self._ask(str, "draw")

    def inspect(self) -> dict[str, Any]:
        """Known problems of the model for the target, as `onnx-bisect/inspection@1`; compiles nothing.

        Without a backend, problems for compilers in general.
        """
        return self._ask(dict[str, Any], "inspect")

    def key(self, units: UnitSet, *, as_part: bool = False) -> str:
        return self._ask(str, "key", units=units, as_part=as_part)

    def ask(self, units: UnitSet, *, seconds_left: float | None, as_part: bool = False) -> ProbeResult:
        return self._ask(ProbeResult, "ask", units=units, seconds_left=seconds_left, as_part=as_part)

    def digests(self, pieces: Sequence[UnitSet]) -> list[str]:
        return self._ask(list[str], "digests", pieces=pieces)

    def report(
        self,
        begun: protocol.StepProgress,
        folder: Path,
        *,
        logs: Mapping[str, str],
        compiles_after: CompilesAfter | None = None,
        file_after: str = "",
        neighbours: int = 0,
    ) -> protocol.ModelQuestion | protocol.ReportOutcome:
        given = {"logs": logs, "compiles_after": compiles_after, "file_after": file_after, "neighbours": neighbours}
        return self._step(protocol.ReportOutcome, folder, "report", begun=begun, **given)

    def change(self, begun: protocol.StepProgress, folder: Path) -> protocol.ModelQuestion | protocol.ChangeOutcome:
        return self._step(protocol.ChangeOutcome, folder, "change", begun=begun)

    def repair(self, begun: protocol.StepProgress, folder: Path) -> protocol.ModelQuestion | protocol.RepairOutcome:
        return self._step(protocol.RepairOutcome, folder, "repair", begun=begun)

    def precision(
        self,
        known: Sequence[MeasuredSet],
        folder: Path,
        *,
        calls: int | None,
        seconds: float | None,
        tell: Callable[[MeasuredSet], None],
    ) -> protocol.PrecisionOutcome:
        def told(message: object) -> None:
            tell(self._read(message, MeasuredSet))

        given = {"known": known, "calls": calls, "seconds": seconds}
        return self._moved(self._ask(protocol.PrecisionOutcome, "precision", told, **given), folder)

    def kill(self) -> None:
        with self._starting:
            self._killed = True
            process = self._process
        if process is not None:
            process.end()

    def close(self) -> None:
        """End the process when no thread waits for it."""
        self.kill()
        if self._process is not None:
            self._process.close()

    def _step(self, kind: type[OutcomeT], folder: Path, what: str, **given: Any) -> protocol.ModelQuestion | OutcomeT:
        """The result of a step, or its question, whose files are moved to the folder."""
        return self._moved(
            self._ask(cast("type[protocol.ModelQuestion | OutcomeT]", protocol.ModelQuestion | kind), what, **given),
            folder,
        )

    def _moved(self, came: OutcomeT, folder: Path) -> OutcomeT:
        """What came, with its files in the folder.

        A model may have taken over the process, put links in place of files, or named files of another process.
        """
        files = {}
        for name, written in came.files.items():
            if not _NAMES[type(came)].fullmatch(name) or Path(written.name) != written:
                raise protocol.ProcessLostError("The process that had the model named a file that is none of its own.")
            path = files[name] = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self._started().folder / protocol.OWN / written).rename(path)
            except OSError as error:
                raise protocol.ProcessLostError(
                    f"The process that had the model wrote no file: {error.strerror}."
                ) from error
            if not stat.S_ISREG(path.lstat().st_mode):
                raise protocol.ProcessLostError("The process that had the model wrote something else than a file.")
        return replace(came, files=files)

    def _ask(self, kind: type[T], what: str, told: Callable[[object], None] | None = None, /, **given: Any) -> T:
        self.requests += 1
        kinds = get_type_hints(getattr(type(self), what), include_extras=True)
        typed = {name: to_json(value, kinds[name]) for name, value in given.items()}
        try:
            answer = self._started().ask({"do": what, "given": typed}, told)
        except BaseException:
            self.kill()  # it may be in the middle of its answer
            raise
        if "error" not in answer:
            return self._read(answer.get("result"), kind)
        error = protocol.raised(answer)
        if isinstance(error, protocol.ProcessLostError):
            self.kill()  # it reports that it cannot continue
        raise error

    def _read(self, data: object, kind: type[T]) -> T:
        try:
            return from_json(data, kind)
        except Exception as wrong:  # hostile data raises anything
            self.kill()
            raise protocol.ProcessLostError("The process that had the model gave an answer that is none.") from wrong

    def _started(self) -> ChildProcess:
        with self._starting:
            if self._killed:
                raise protocol.ProcessKilledError("The process that had the model was told to end.")
            if self._process is None:
                setup = self._setup()
                self._process = ChildProcess(setup.folder, self._server, seconds=setup.seconds)
                self._process.tell(to_json(setup))
            return self._process

    def _setup(self) -> protocol.Setup:
        settings, folder = self._settings, processes_folder(self._settings) / uuid4().hex
        paths = {}
        for name in self.case.all_files:
            try:
                paths[name] = self._files.path(name).absolute()
            except FileNotFoundError:
                raise OnnxBisectError(
                    f"The file {name} of the job is not stored here any more: upload it again, and start the job again."
                ) from None
        self.size = sum(path.stat().st_size for path in paths.values())
        inherited = settings.compiler_env
        with suppress(OnnxBisectError):  # the process will report it
            inherited = (*registry.inherited_by(self.case.backend), *inherited)
        return protocol.Setup(
            case=self.case,
            paths=paths,
            folder=folder,
            environment=environment(folder / protocol.OWN, inherited),
            cache=settings.cache.absolute() / "models",
            cache_bytes=settings.model_cache,
            compile_seconds=settings.compile_seconds,
            compile_memory=settings.compile_memory,
            confinement=confinement(settings),
            seconds=settings.model_seconds,
            memory=settings.model_memory,
            nodes=settings.nodes,
        )


def processes_folder(settings: Settings) -> Path:
    """The folder of all model processes' folders, and of those that steps put the processes' files into."""
    return settings.cache.absolute() / "hosts"


#: Seconds that a request waits for a process that has its model, before another process reads it.
_PATIENCE = 0.2


class ModelPool:
    """The model processes of this worker.

    Of the unused ones, the most recently used is kept, and others as long as they are at most `idle` and their models
    at most `idle_bytes` together.
    """

    def __init__(self, settings: Settings, files: FileStore, *, idle: int = 8, idle_bytes: int = 1 << 29) -> None:
        self._settings = settings
        self._files = files
        self._most_idle = idle
        self._most_bytes = idle_bytes
        self._lock = Condition()
        self._server = ForkServer(environment(processes_folder(settings)))
        #: Most recently used last.
        self._idle: list[ModelClient] = []
        self._acquired: list[ModelClient] = []
        clear_process_folders(settings)

    @contextmanager
    def acquire(self, case: protocol.Case, *, new: bool = False) -> Iterator[ModelClient]:
        process = self._take(case, new=new)
        try:
            yield process
        finally:
            with self._lock:
                self._acquired.remove(process)
                self._idle.append(process)
                self._lock.notify_all()
                surplus = [it for it in self._idle if not it.usable]
                self._idle = [it for it in self._idle if it not in surplus]
                while len(self._idle) > 1 and (
                    len(self._idle) > self._most_idle or sum(it.size for it in self._idle) > self._most_bytes
                ):
                    surplus.append(self._idle.pop(0))
            for it in surplus:
                it.close()

    def warm(self) -> Collection[str]:
        with self._lock:
            return {it.case.prepared for it in self._idle if it.case.prepared is not None and it.usable}

    def close(self) -> None:
        """See `Pool.close`. Processes in use are killed, and returned by their threads."""
        with self._lock:
            idle, self._idle = self._idle, []
            acquired = list(self._acquired)
        for process in acquired:
            process.kill()
        for process in idle:
            process.close()
        self._server.close()

    def _take(self, case: protocol.Case, *, new: bool) -> ModelClient:
        """An unused process that has this case's model and target; one that has prepared can serve a later job, too.

        If all of them are in use, it waits for the next one to be released, and no longer than `_PATIENCE`.
        """

        def fit(among: Collection[ModelClient]) -> list[ModelClient]:
            return [it for it in among if case in (it.case, replace(it.case, prepared=None)) and it.usable]

        with self._lock:
            if not new:
                self._lock.wait_for(lambda: fit(self._idle) or not fit(self._acquired), _PATIENCE)
            found = [] if new else fit(self._idle)
            if found:
                process = max(found, key=lambda it: it.requests)  # it has computed most of what a request may need
                self._idle.remove(process)
            else:
                process = ModelClient(case, self._settings, self._files, self._server)
            self._acquired.append(process)
        return process


def clear_process_folders(settings: Settings) -> None:
    """Remove the folders of processes that were killed."""
    folder = processes_folder(settings)
    for left in folder.iterdir() if folder.is_dir() else ():
        remove(left)


def inspection(
    service: Service,
    model: StoredModel,
    *,
    backend: str,
    options: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    values: InputValues,
) -> dict[str, Any]:
    """`onnx-bisect/inspection@1` of a stored model, from a process started for it; an empty `backend` means no target.

    Raises OnnxBisectError with a sentence for the user.
    """
    case = protocol.Case(
        tenant=model.tenant,
        onnx=model.onnx_file,
        model_name=model.name,
        files=model.files,
        backend=backend,
        options=options,
        spec=SearchSpec(input_shapes={name: tuple(shape) for name, shape in shapes.items()}, input_values=values),
    )
    with closing(ModelPool(service.settings, service.files)) as pool, pool.acquire(case) as process:
        return process.inspect()
