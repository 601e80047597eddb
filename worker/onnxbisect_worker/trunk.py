"""The process of a worker that its fork servers are forked from, so that everything is imported once.

A server has half a second of work and a hundred megabytes before it forks its first host, and each process of a worker
has a server of its own. The trunk is one more of them, which the worker starts before it forks its processes. These
inherit the socket on which it is asked for servers; it ends when the last one has closed it.
"""

import logging
import socket
import subprocess
import sys
from collections.abc import Mapping

from onnxbisect_worker.forked import SERVER, Forked, forked

#: What has threads cannot be forked safely; numpy's calculations here are too small to want more.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
#: Seconds in which it forks a server, also where it has yet to import everything.
_STARTING = 30.0
#: Seconds in which it ends, once nobody can ask it for anything.
_PATIENCE = 2.0

log = logging.getLogger(__name__)


class Trunk:
    """Started, and closed, in the worker; used by any process that was forked from it afterwards."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = started(theirs, subprocess.DEVNULL, environment)
        self._requests.setblocking(False)  # nobody waits for a trunk that takes no requests

    def server(self, requests: socket.socket, printed: int) -> Forked | None:
        """A server for these requests, whose last words go to that descriptor. None where the trunk is gone, OSError
        where it cannot fork.
        """
        found = forked(self._requests, SERVER, [requests.fileno(), printed], _STARTING)
        if found is None and self._requests.fileno() >= 0:
            self._requests.close()
            log.warning("what fork servers are forked from does not answer: this process imports everything for itself")
        return found

    def close(self) -> None:
        """End it, once nobody can ask the servers that it forked; or with them."""
        self._requests.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # a process of the worker is still there
            self._process.kill()
            self._process.wait()


def started(requests: socket.socket, printed: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A server for these requests that is nobody's fork, but imports everything."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "onnxbisect_worker.fork_server"],
        stdin=requests.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=printed,
        env={**environment, **_ONE_THREAD},
        start_new_session=True,  # Ctrl-C is for the worker, who ends its hosts
    )
