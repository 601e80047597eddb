"""Where processes that read models are forked from, as their worker sees it: see `fork_server`."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from threading import Lock

from onnxbisect_worker.model_processes.contract import ProcessKilledError
from onnxbisect_worker.model_processes.exit_description import exit_description
from onnxbisect_worker.model_processes.forked import Forked, forked

#: The name of a model process, for those who look at the system's processes.
HOST_NAME = "model-host"
#: What has threads cannot be forked safely; numpy's calculations here are too small to want more.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
#: Seconds in which a server imports everything and forks a process, on a machine that has much to do.
_STARTING = 60.0
#: Seconds in which a server without children ends.
_PATIENCE = 2.0
#: Bytes that a pipe holds, and so all that is left of what a server printed.
_PIPE = 1 << 16


class _Server:
    """One that runs, or did."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "onnxbisect_worker.model_processes.fork_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**environment, **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C is for the worker, which ends its processes
            )

    def end(self) -> tuple[int, bytes]:
        """Have it end; how it did, and its last words."""
        self.requests.close()
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        assert self._process.stderr is not None  # noqa: S101
        with self._process.stderr as printed:
            os.set_blocking(printed.fileno(), False)  # a child that has not ended yet keeps it open
            said = printed.read1(_PIPE) or b""  # type: ignore[attr-defined]
        return code, said


class ForkServer:
    """A process of this one's own, started when it is first needed, and again where it was killed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._lock = Lock()
        self._server: _Server | None = None

    def fork(self, channel: int, output: int, lock: int) -> Forked:
        """A model process with copies of these descriptors. OSError where none can be started, ProcessKilledError where
        the server was killed, again, before it could.
        """
        with self._lock:
            for _ in range(2):  # that the server was killed is seen when it is asked
                self._server = self._server or _Server(self._environment)
                if host := forked(self._server.requests, [channel, output, lock], _STARTING):
                    return host
                code, said = self._stop(self._server)
            raise (
                ProcessKilledError(f"The process {said}") if code == -signal.SIGKILL else OSError(f"the process {said}")
            )

    def close(self) -> None:
        """End it. Its children are to have ended."""
        with self._lock:
            if self._server is not None:
                self._stop(self._server)

    def _stop(self, server: _Server) -> tuple[int, str]:
        """How it ended, as a number and in words."""
        self._server = None
        code, said = server.end()
        return code, f"that starts readers of models {exit_description(code, said)}"
