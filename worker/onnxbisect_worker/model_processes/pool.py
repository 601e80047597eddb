"""The model processes of a worker: started when they are asked, kept for the next question, used by one thread each."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Lock

from onnxbisect_db.files import FileStore
from onnxbisect_service.settings import Settings
from onnxbisect_worker.held_folders import remove
from onnxbisect_worker.model_processes.client import ModelClient, hosts_folder
from onnxbisect_worker.model_processes.contract import Case, ModelProcess
from onnxbisect_worker.model_processes.environment import host_environment
from onnxbisect_worker.model_processes.fork_client import ForkServer


class ModelPool:
    """The model processes of this worker. Of those that no thread uses, the one that was used last waits for the next
    question, and others do as long as they are not more than `idle` and hold no more than `idle_memory` bytes together.
    """

    def __init__(self, settings: Settings, files: FileStore, *, idle: int = 8, idle_memory: int = 1 << 30) -> None:
        self._settings = settings
        self._files = files
        self._most_idle = idle
        self._most_memory = idle_memory
        self._lock = Lock()
        self._server = ForkServer(host_environment(hosts_folder(settings)))
        #: The latest used ones at the end.
        self._idle: list[ModelClient] = []
        self._acquired: list[ModelClient] = []
        self._swept = False

    @contextmanager
    def acquire(self, case: Case, *, new: bool = False) -> Iterator[ModelProcess]:
        process = self._take(case, new=new)
        try:
            yield process
        finally:
            self._take_back(process)

    def warm(self) -> Collection[str]:
        with self._lock:
            return {
                process.case.prepared for process in self._idle if process.case.prepared is not None and process.usable
            }

    def close(self) -> None:
        """See `Pool.close`. Those in use are killed, and given back by the threads that use them."""
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
            if not self._swept:
                self._swept = True
                clear_hosts(self._settings)
            lost = [process for process in self._idle if not process.usable]
            wanted = _identity(case)
            fit = [
                process for process in self._idle if process.usable and _identity(process.case) == wanted and not new
            ][-1:]
            self._idle = [process for process in self._idle if process not in (*lost, *fit)]
            process = fit[0] if fit else ModelClient(case, self._settings, self._files, self._server)
            self._acquired.append(process)
        for gone in lost:
            gone.close()
        return process

    def _take_back(self, process: ModelClient) -> None:
        with self._lock:
            if process in self._acquired:
                self._acquired.remove(process)
            self._idle.append(process)
            surplus = [one for one in self._idle if not one.usable]
            self._idle = [one for one in self._idle if one not in surplus]
            while len(self._idle) > 1 and self._crowded():
                surplus.append(self._idle.pop(0))
        for one in surplus:
            one.close()

    def _crowded(self) -> bool:
        return len(self._idle) > self._most_idle or sum(process.memory for process in self._idle) > self._most_memory


def clear_hosts(settings: Settings) -> None:
    """Remove folders of model processes that were killed."""
    folder = hosts_folder(settings)
    for left in folder.iterdir() if folder.is_dir() else ():
        remove(left)


def _identity(case: Case) -> str:
    return json.dumps(asdict(case), sort_keys=True)
