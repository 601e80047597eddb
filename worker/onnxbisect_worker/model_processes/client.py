"""A model process as its worker sees it."""

import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from onnxbisect.errors import OnnxBisectError
from onnxbisect.job import Stats
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Status
from onnxbisect_backends import registry
from onnxbisect_backends.probing.prober import Asked
from onnxbisect_db.answered import Answered
from onnxbisect_db.files import FileStore
from onnxbisect_service.settings import Settings
from onnxbisect_worker.model_processes.child_process import ChildProcess
from onnxbisect_worker.model_processes.confinement import confinement
from onnxbisect_worker.model_processes.contract import (
    Begun,
    Case,
    ProcessKilledError,
    ProcessLostError,
    Question,
    Repaired,
    Written,
)
from onnxbisect_worker.model_processes.environment import host_environment
from onnxbisect_worker.model_processes.fork_client import ForkServer
from onnxbisect_worker.model_processes.messages import (
    OWN,
    Setup,
    answered_to_json,
    asked_from_json,
    begun_to_json,
    raised,
)
from onnxbisect_worker.prepared import Prepared

#: What a file of a report is called there, one of a repair, and one of a model that a repair asks about.
_FILE = re.compile(r"culprits/[0-9]{2,}-[A-Za-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*")
_REPAIR_FILE = re.compile(r"repair/[a-z]+\.(onnx|json|md)")
_MODEL_FILE = re.compile(r"model\.(onnx|data)")


class ModelClient:
    """A `ModelProcess` that starts when it is first asked for something."""

    def __init__(self, case: Case, settings: Settings, files: FileStore, server: ForkServer) -> None:
        self.case = case
        self._server = server
        self._settings = settings
        self._files = files
        self._process: ChildProcess | None = None
        self._killed = False
        self._starting = Lock()

    @property
    def usable(self) -> bool:
        """Whether it has a process that can go on."""
        return self._process is not None and self._process.alive

    @property
    def memory(self) -> int:
        """Bytes that its process holds."""
        return 0 if self._process is None else self._process.memory

    def prepare(self) -> Prepared:
        """See `ModelProcess.prepare`. From then on it also serves the case that is prepared with what is returned."""
        prepared = Prepared.from_bytes(self._ask(do="prepare").encode())
        self.case = replace(self.case, prepared=sha256(prepared.to_bytes()).hexdigest())
        return prepared

    def draw(self) -> bytes:
        drawn: str = self._ask(do="draw")
        return drawn.encode()

    def inspect(self) -> dict[str, Any]:
        """What the target minds about the model, as `onnx-bisect/inspection@1`; compiles nothing. Without a backend,
        what compilers mind in general.
        """
        found: dict[str, Any] = self._ask(do="inspect")
        return found

    def key(self, units: UnitSet) -> str:
        key: str = self._ask(do="key", units=f"{units:x}")
        return key

    def ask(self, units: UnitSet, *, seconds_left: float | None) -> Asked:
        return asked_from_json(self._ask(do="ask", units=f"{units:x}", seconds_left=seconds_left))

    def digests(self, pieces: Sequence[UnitSet]) -> list[str]:
        found: list[str] = self._ask(do="digests", pieces=[f"{units:x}" for units in pieces])
        return found

    def report(self, answers: Sequence[Answered], stats: Stats, logs: Mapping[str, str], folder: Path) -> Written:
        listed = [answered_to_json(it) for it in answers]
        written = self._ask(do="report", answers=listed, stats=asdict(stats), logs=dict(logs))
        return Written(document=written["document"], files=self._all_taken(written["files"], folder, _FILE))

    def repair(self, begun: Begun, folder: Path) -> Question | Repaired:
        came = self._ask(do="repair", **begun_to_json(begun))
        if came["question"] is not None:
            files = self._all_taken(came["files"], folder, _MODEL_FILE)
            return Question(files=files, piece=bool(came["question"]["piece"]), whole=bool(came["question"]["whole"]))
        return Repaired(outcome=_outcome(came["outcome"]), files=self._all_taken(came["files"], folder, _REPAIR_FILE))

    def kill(self) -> None:
        with self._starting:
            self._killed = True
            process = self._process
        if process is not None:
            process.end()

    def close(self) -> None:
        """End it, when nobody waits for it."""
        self.kill()
        if self._process is not None:
            self._process.close()

    def _all_taken(self, written: Mapping[str, str], folder: Path, called: re.Pattern[str]) -> dict[str, Path]:
        return {name: self._taken(path, folder, name, called) for name, path in written.items()}

    def _taken(self, written: str, folder: Path, name: str, called: re.Pattern[str]) -> Path:
        """A file that the process wrote, moved to its place in the folder. A model that has taken the process over may
        have put a link there instead, or have named a file that is not its own.
        """
        if not called.fullmatch(name) or Path(written).name != written:
            raise ProcessLostError("The process that had the model named a file that is none of its own.")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self._started().folder / OWN / written).rename(path)
        except OSError as error:
            raise ProcessLostError(f"The process that had the model wrote no file: {error.strerror}.") from error
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ProcessLostError("The process that had the model wrote something else than a file.")
        return path

    def _ask(self, **request: Any) -> Any:
        answer = self._started().ask(request)
        if "error" not in answer:
            return answer["result"]
        error = raised(answer)
        if isinstance(error, ProcessLostError):
            self.kill()  # it says itself that it cannot go on
        raise error

    def _started(self) -> ChildProcess:
        with self._starting:
            if self._killed:
                raise ProcessKilledError("The process that had the model was told to end.")
            if self._process is None:
                self._process = self._start()
            return self._process

    def _start(self) -> ChildProcess:
        folder = hosts_folder(self._settings) / uuid4().hex
        setup = self._setup(folder)
        try:
            process = ChildProcess(folder, self._server, seconds=self._settings.model_seconds)
        except OSError as error:
            reason = error.strerror or str(error).rstrip(".")
            raise ProcessKilledError(f"No process could be started that reads the model: {reason}.") from error
        process.tell(setup.to_json())
        return process

    def _setup(self, folder: Path) -> Setup:
        case, settings, repair = self.case, self._settings, self.case.order.repair
        confined = confinement(settings)
        return Setup(
            folder=str(folder),
            environment=host_environment(folder / OWN, self._inherited()),
            model=self._path(case.onnx),
            onnx=case.onnx,
            model_name=case.model_name,
            files={location: self._path(name) for location, name in case.files.items()},
            backend=case.backend,
            options=case.options,
            order=case.order.to_json(),
            calibration={name: self._path(stored) for name, stored in case.order.calibration.items()},
            samples={} if repair is None else {name: self._path(it) for name, it in repair.samples.items()},
            prepared=None if case.prepared is None else self._path(case.prepared),
            cache=str(settings.cache.absolute() / "models"),
            cache_bytes=settings.model_cache,
            compile_seconds=settings.compile_seconds,
            compile_memory=settings.compile_memory,
            hidden=None if confined is None else [str(folder) for folder in confined.hidden],
            isolation_required=confined is not None and confined.required,
            seconds=settings.model_seconds,
            memory=settings.model_memory,
            nodes=settings.nodes,
        )

    def _path(self, name: str) -> str:
        try:
            return str(self._files.path(name).absolute())
        except FileNotFoundError:
            raise OnnxBisectError(
                f"The file {name} of the job is not stored here any more: upload it again, and start the job again."
            ) from None

    def _inherited(self) -> tuple[str, ...]:
        with suppress(OnnxBisectError):  # the process will say it
            return (*registry.inherited_by(self.case.backend), *self._settings.compiler_env)
        return self._settings.compiler_env


def _outcome(came: Mapping[str, Any]) -> dict[str, Any]:
    """With nothing in it but what belongs there: a model that has taken the process over may say anything."""
    numbers = {name: int(came[name]) for name in ("changes", "left", "calls")}
    return {"verdict": Status(came["verdict"]).value, **numbers, "problem": str(came["problem"])}


def hosts_folder(settings: Settings) -> Path:
    """Where model processes have their folders."""
    return settings.cache.absolute() / "hosts"
