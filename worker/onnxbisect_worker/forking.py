"""Where hosts are forked from, as their worker sees it: see `fork_server`."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from onnxbisect_worker.forked import HOST, Forked, forked
from onnxbisect_worker.hosting import HostKilledError
from onnxbisect_worker.obituary import obituary
from onnxbisect_worker.trunk import Trunk, started

#: The name of a host, for those who look at the system's processes.
HOST_NAME = "model-host"
#: Seconds in which a server imports everything and forks a host, on a machine that has much to do.
_STARTING = 60.0
#: Seconds in which a server without children ends.
_PATIENCE = 2.0
#: Bytes that a pipe holds, and so all that is left of what a server printed.
_PIPE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class _Server:
    """One that runs, or did."""

    requests: socket.socket
    process: "Forked | subprocess.Popen[bytes]"
    #: What it prints. Never waited for: whoever has not ended yet keeps it open.
    printed: int

    def end(self) -> tuple[int, bytes]:
        """Have it end; how it did, and what it printed. It ends by itself, also where nobody can say when, since what
        it was forked from is gone.
        """
        self.requests.close()
        code = self._ended()
        try:
            said = os.read(self.printed, _PIPE)
        except BlockingIOError:
            said = b""
        self.forget()
        return code, said

    def forget(self) -> None:
        """Close what is open here."""
        if isinstance(self.process, Forked):
            self.process.forget()
        elif self.process.returncode is None:
            self.process.returncode = 0  # not ours to wait for
        self.requests.close()
        os.close(self.printed)

    def _ended(self) -> int:
        for _ in range(2):
            try:
                return self.process.wait(_PATIENCE)
            except (TimeoutError, subprocess.TimeoutExpired):
                self.process.kill()
        return -signal.SIGKILL  # whoever is to say so is stopped


class ForkServer:
    """A process of this one's own, started when it is first needed, and again where it was killed."""

    def __init__(self, environment: Mapping[str, str], trunk: Trunk | None = None) -> None:
        """With a trunk it is forked from there, as long as the trunk is there."""
        self._environment = environment
        self._trunk = trunk
        self._lock = Lock()
        self._server: _Server | None = None

    def fork(self, channel: int, output: int, lock: int) -> Forked:
        """A host with copies of these descriptors. OSError where none can be started, HostKilledError where the server
        was shot, again, before it could.
        """
        with self._lock:
            for _ in range(2):  # that the server was killed is seen when it is asked
                self._server = self._server or self._start()
                if host := forked(self._server.requests, HOST, [channel, output, lock], _STARTING):
                    return host
                code, said = self._stop(self._server)
            raise HostKilledError(f"The process {said}") if code == -signal.SIGKILL else OSError(f"the process {said}")

    def close(self) -> None:
        """End it. Its children are to have ended."""
        with self._lock:
            if self._server is not None:
                self._stop(self._server)

    def forget(self) -> None:
        """For a process that was forked from the one whose child this is: the other goes on with it."""
        server, self._server = self._server, None
        if server is not None:
            server.forget()

    def _start(self) -> _Server:
        requests, theirs = socket.socketpair()
        read, printed = os.pipe()
        os.set_blocking(read, False)
        try:
            process = self._trunk and self._trunk.server(theirs, printed)
            return _Server(
                requests=requests, process=process or started(theirs, printed, self._environment), printed=read
            )
        except OSError:
            requests.close()
            os.close(read)
            raise
        finally:
            theirs.close()
            os.close(printed)

    def _stop(self, server: _Server) -> tuple[int, str]:
        """How it ended, as a number and in words."""
        self._server = None
        code, said = server.end()
        return code, f"that starts readers of models {obituary(code, said)}"
