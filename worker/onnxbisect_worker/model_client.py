"""The hosts of one process: started when they are asked, kept for the next question, handed out one at a time."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Lock

from onnxbisect_db.files import FileStore
from onnxbisect_service.settings import Settings
from onnxbisect_worker.child_host import ChildHost, hosts_folder
from onnxbisect_worker.forking import ForkServer
from onnxbisect_worker.held_folders import remove
from onnxbisect_worker.host_environment import host_environment
from onnxbisect_worker.hosting import Case, Host


class ModelHosts:
    """The hosts of this process. Of those in nobody's hands the one that was used last waits for the next question,
    and others do as long as they are not more than `idle` and hold no more than `idle_memory` bytes together.
    """

    def __init__(self, settings: Settings, files: FileStore, *, idle: int = 8, idle_memory: int = 1 << 30) -> None:
        self._settings = settings
        self._files = files
        self._most_idle = idle
        self._most_memory = idle_memory
        self._lock = Lock()
        self._server = ForkServer(host_environment(hosts_folder(settings)))
        #: The latest used ones at the end.
        self._idle: list[ChildHost] = []
        self._lent: list[ChildHost] = []
        self._swept = False

    @contextmanager
    def lent(self, case: Case, *, new: bool = False) -> Iterator[Host]:
        """See `Hosts.lent`."""
        host = self._take(case, new=new)
        try:
            yield host
        finally:
            self._take_back(host)

    def warm(self) -> Collection[str]:
        """See `Hosts.warm`."""
        with self._lock:
            return {host.case.prepared for host in self._idle if host.case.prepared is not None and host.usable}

    def close(self) -> None:
        """See `Hosts.close`. Those that are lent are killed; their borrowers give them back."""
        with self._lock:
            idle, self._idle = self._idle, []
            lent = list(self._lent)
        for host in lent:
            host.kill()
        for host in idle:
            host.close()
        self._server.close()

    def _take(self, case: Case, *, new: bool) -> ChildHost:
        with self._lock:
            if not self._swept:
                self._swept = True
                clear_hosts(self._settings)
            lost = [host for host in self._idle if not host.usable]
            wanted = _identity(case)
            fit = [host for host in self._idle if host.usable and _identity(host.case) == wanted and not new][-1:]
            self._idle = [host for host in self._idle if host not in (*lost, *fit)]
            host = fit[0] if fit else ChildHost(case, self._settings, self._files, self._server)
            self._lent.append(host)
        for gone in lost:
            gone.close()
        return host

    def _take_back(self, host: ChildHost) -> None:
        with self._lock:
            if host in self._lent:
                self._lent.remove(host)
            self._idle.append(host)
            surplus = [one for one in self._idle if not one.usable]
            self._idle = [one for one in self._idle if one not in surplus]
            while len(self._idle) > 1 and self._crowded():
                surplus.append(self._idle.pop(0))
        for one in surplus:
            one.close()

    def _crowded(self) -> bool:
        return len(self._idle) > self._most_idle or sum(host.memory for host in self._idle) > self._most_memory


def clear_hosts(settings: Settings) -> None:
    """Remove folders of hosts that were killed."""
    folder = hosts_folder(settings)
    for left in folder.iterdir() if folder.is_dir() else ():
        remove(left)


def _identity(case: Case) -> str:
    return json.dumps(asdict(case), sort_keys=True)
