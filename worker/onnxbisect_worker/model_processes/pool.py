"""The model processes of a worker: started on demand, kept for the next request, used by one thread each."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition

from onnxbisect_db.files import FileStore
from onnxbisect_service.settings import Settings
from onnxbisect_worker.held_folders import remove
from onnxbisect_worker.model_processes.client import ModelClient, hosts_folder
from onnxbisect_worker.model_processes.confinement import environment
from onnxbisect_worker.model_processes.process import ForkServer
from onnxbisect_worker.model_requests.protocol import Case

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
        self._server = ForkServer(environment(hosts_folder(settings)))
        #: Most recently used last.
        self._idle: list[ModelClient] = []
        self._acquired: list[ModelClient] = []
        clear_hosts(settings)

    @contextmanager
    def acquire(self, case: Case, *, new: bool = False) -> Iterator[ModelClient]:
        process = self._take(case, new=new)
        try:
            yield process
        finally:
            self._take_back(process)

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

    def _take(self, case: Case, *, new: bool) -> ModelClient:
        with self._lock:
            fit = [] if new else self._awaited(case)
            if fit:
                process = max(fit, key=lambda it: it.requests)  # it has computed most of what a request may need
                self._idle.remove(process)
            else:
                process = ModelClient(case, self._settings, self._files, self._server)
            self._acquired.append(process)
        return process

    def _awaited(self, case: Case) -> list[ModelClient]:
        """The unused processes that have this case's model; if all of them are in use, the next one to be released."""

        def fit(among: Collection[ModelClient]) -> list[ModelClient]:
            return [it for it in among if _serves(it, case) and it.usable]

        self._lock.wait_for(lambda: fit(self._idle) or not fit(self._acquired), _PATIENCE)
        return fit(self._idle)

    def _take_back(self, process: ModelClient) -> None:
        with self._lock:
            self._acquired.remove(process)
            self._idle.append(process)
            self._lock.notify_all()
            surplus = [it for it in self._idle if not it.usable]
            self._idle = [it for it in self._idle if it not in surplus]
            while len(self._idle) > 1 and self._crowded():
                surplus.append(self._idle.pop(0))
        for it in surplus:
            it.close()

    def _crowded(self) -> bool:
        return len(self._idle) > self._most_idle or sum(it.size for it in self._idle) > self._most_bytes


def _serves(process: ModelClient, case: Case) -> bool:
    """Whether it has this model and target. One that has prepared can serve a later job, too."""
    return case in (process.case, replace(process.case, prepared=None))


def clear_hosts(settings: Settings) -> None:
    """Remove the folders of processes that were killed."""
    folder = hosts_folder(settings)
    for left in folder.iterdir() if folder.is_dir() else ():
        remove(left)
