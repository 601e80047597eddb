"""Hosts as child processes: `hosting.Host` and `hosting.Hosts` for everybody who works on searches."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from onnxbisect.errors import OnnxBisectError
from onnxbisect.job import Stats
from onnxbisect.unitset import UnitSet
from onnxbisect_backends import registry
from onnxbisect_backends.probing.prober import Asked
from onnxbisect_db.answered import Answered
from onnxbisect_db.files import Files
from onnxbisect_worker.held_folders import remove
from onnxbisect_worker.host_environment import host_environment
from onnxbisect_worker.host_messages import Setup, answered_to_json, asked_from_json, raised
from onnxbisect_worker.host_process import HostProcess
from onnxbisect_worker.hosting import Case, Host, HostLostError, Written
from onnxbisect_worker.prepared import Prepared
from onnxbisect_worker.settings import Settings


class ModelHost:
    """A `Host` whose process starts when it is first asked for something."""

    def __init__(self, case: Case, settings: Settings, files: Files) -> None:
        self.case = case
        self._settings = settings
        self._files = files
        self._process: HostProcess | None = None
        self._killed = False
        self._starting = Lock()

    @property
    def usable(self) -> bool:
        """Whether it has a process that can go on."""
        return self._process is not None and self._process.alive

    def prepare(self) -> Prepared:
        """See `Host.prepare`. From then on this is also a host for the case that is prepared with what is returned."""
        prepared = Prepared.from_bytes(self._ask(do="prepare").encode())
        self.case = replace(self.case, prepared=sha256(prepared.to_bytes()).hexdigest())
        return prepared

    def key(self, units: UnitSet) -> str:
        """See `Host.key`."""
        key: str = self._ask(do="key", units=f"{units:x}")
        return key

    def ask(self, units: UnitSet, *, seconds_left: float | None) -> Asked:
        """See `Host.ask`."""
        return asked_from_json(self._ask(do="ask", units=f"{units:x}", seconds_left=seconds_left))

    def unseen(self, answers: Sequence[Answered]) -> list[UnitSet]:
        """See `Host.unseen`."""
        found = self._ask(do="unseen", answers=[answered_to_json(it) for it in answers])
        return [int(units, 16) for units in found]

    def report(self, answers: Sequence[Answered], stats: Stats, logs: Mapping[str, str], folder: Path) -> Written:
        """See `Host.report`."""
        listed = [answered_to_json(it) for it in answers]
        place = str(folder.absolute())
        written = self._ask(do="report", answers=listed, stats=asdict(stats), logs=dict(logs), folder=place)
        files = {name: Path(path) for name, path in written["files"].items()}
        return Written(document=written["document"], files=files)

    def kill(self) -> None:
        """See `Host.kill`."""
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

    def forget(self) -> None:
        """After a fork: it is the other process's."""
        if self._process is not None:
            self._process.forget()

    def _ask(self, **request: Any) -> Any:
        answer = self._started().ask(request)
        if "error" not in answer:
            return answer["result"]
        error = raised(answer)
        if isinstance(error, HostLostError):
            self.kill()  # it says itself that it cannot go on
        raise error

    def _started(self) -> HostProcess:
        with self._starting:
            if self._killed:
                raise HostLostError("The process that had the model was told to end.")
            if self._process is None:
                self._process = self._start()
            return self._process

    def _start(self) -> HostProcess:
        setup = self._setup()
        folder = hosts_folder(self._settings) / uuid4().hex
        environment = host_environment(folder, self._inherited())
        try:
            process = HostProcess(folder, environment, seconds=self._settings.model_seconds)
        except OSError as error:
            reason = error.strerror or error
            raise HostLostError(f"No process could be started that reads the model: {reason}.") from error
        process.tell(setup.to_json())
        return process

    def _setup(self) -> Setup:
        case, settings = self.case, self._settings
        return Setup(
            model=self._path(case.model_sha256),
            model_sha256=case.model_sha256,
            model_name=case.model_name,
            files={location: self._path(name) for location, name in case.files.items()},
            backend=case.backend,
            options=case.options,
            order=case.order.to_json(),
            calibration={name: self._path(stored) for name, stored in case.order.calibration.items()},
            prepared=None if case.prepared is None else self._path(case.prepared),
            cache=str(settings.cache.absolute() / "models"),
            cache_bytes=settings.model_cache,
            compile_seconds=settings.compile_seconds,
            compile_memory=settings.compile_memory,
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
        with suppress(OnnxBisectError):  # the host will say it
            return (*registry.find(self.case.backend).inherit_env, *self._settings.compiler_env)
        return self._settings.compiler_env


class ModelHosts:
    """The hosts of this process. `idle` is how many wait for the next question when they are in nobody's hands."""

    def __init__(self, settings: Settings, files: Files, *, idle: int = 3) -> None:
        self._settings = settings
        self._files = files
        self._most_idle = idle
        self._lock = Lock()
        self._process_id = os.getpid()
        #: The latest used ones at the end.
        self._idle: list[ModelHost] = []
        self._lent: list[ModelHost] = []
        self._swept = False

    @contextmanager
    def lent(self, case: Case) -> Iterator[Host]:
        """See `Hosts.lent`."""
        host = self._take(case)
        try:
            yield host
        finally:
            self._take_back(host)

    def close(self) -> None:
        """See `Hosts.close`. Those that are lent are killed; their borrowers give them back."""
        with self._lock:
            self._drop_forked()
            idle, self._idle = self._idle, []
            lent = list(self._lent)
        for host in lent:
            host.kill()
        for host in idle:
            host.close()

    def _take(self, case: Case) -> ModelHost:
        with self._lock:
            self._drop_forked()
            if not self._swept:
                self._swept = True
                clear_hosts(self._settings)
            lost = [host for host in self._idle if not host.usable]
            wanted = _identity(case)
            fit = [host for host in self._idle if host.usable and _identity(host.case) == wanted][-1:]
            self._idle = [host for host in self._idle if host not in (*lost, *fit)]
            host = fit[0] if fit else ModelHost(case, self._settings, self._files)
            self._lent.append(host)
        for gone in lost:
            gone.close()
        return host

    def _take_back(self, host: ModelHost) -> None:
        with self._lock:
            if host in self._lent:
                self._lent.remove(host)
            self._idle.append(host)
            surplus = [one for one in self._idle if not one.usable]
            self._idle = [one for one in self._idle if one not in surplus]
            while len(self._idle) > self._most_idle:
                surplus.append(self._idle.pop(0))
        for one in surplus:
            one.close()

    def _drop_forked(self) -> None:
        """After a fork, the hosts are the other process's."""
        if self._process_id == os.getpid():
            return
        self._process_id = os.getpid()
        for host in (*self._idle, *self._lent):
            host.forget()
        self._idle, self._lent = [], []


def hosts_folder(settings: Settings) -> Path:
    """Where hosts have their folders."""
    return settings.cache.absolute() / "hosts"


def clear_hosts(settings: Settings) -> None:
    """Remove folders of hosts that were killed."""
    folder = hosts_folder(settings)
    for left in folder.iterdir() if folder.is_dir() else ():
        remove(left)


def _identity(case: Case) -> str:
    return json.dumps(asdict(case), sort_keys=True)
