"""Where hosts are forked from, as their worker sees it: see `fork_server`."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import IO, cast

from onnxbisect_worker.hosting import HostKilledError
from onnxbisect_worker.obituary import obituary

#: The name of a host, for those who look at the system's processes.
HOST_NAME = "model-host"
#: What has threads cannot be forked safely; numpy's calculations here are too small to want more.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
#: Seconds in which a server without children ends.
_PATIENCE = 2.0


class Forked:
    """A child of the server. Any thread may look at it, wait for it, or kill it."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        #: As `Popen.returncode`; None while it lives.
        self.returncode: int | None = None
        self._told = told
        self._ending = select.poll()
        self._ending.register(told, select.POLLIN)
        self._lock = Lock()

    def poll(self) -> int | None:
        """`returncode`, looked at again."""
        return self._heard(0)

    def wait(self, seconds: float | None = None) -> int:
        """Its `returncode`, when it has ended; raises TimeoutError."""
        code = self._heard(seconds)
        if code is None:
            raise TimeoutError
        return code

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def forget(self) -> None:
        """It is another process's from now on."""
        with self._lock:
            if self.returncode is None:
                self._end(0)

    def _heard(self, seconds: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and self._ending.poll(None if seconds is None else seconds * 1000):
                # a server that was killed takes its children with it, and says nothing
                self._end(int(os.read(self._told, 32) or -signal.SIGKILL))
            return self.returncode

    def _end(self, code: int) -> None:
        self.returncode = code
        os.close(self._told)


class ForkServer:
    """A child process of this one, started when it is first needed, and again where it was killed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, channel: int, output: int, lock: int) -> Forked:
        """A host with copies of these descriptors. OSError where none can be started, HostKilledError where the server
        was shot, again, before it could.
        """
        with self._lock:
            for _ in range(2):  # that the server was killed is seen when it is asked
                self._process = self._process or self._start()
                read, told = os.pipe()
                with suppress(OSError):
                    socket.send_fds(self._requests, [b"+"], [channel, output, lock, told])
                os.close(told)
                pid = _first_line(read)
                if pid > 0:
                    return Forked(pid, read)
                os.close(read)
                if pid < 0:
                    raise OSError(-pid, os.strerror(-pid))
                code, said = self._stop()
            raise HostKilledError(f"The process {said}") if code == -signal.SIGKILL else OSError(f"the process {said}")

    def close(self) -> None:
        """End it. Its children are to have ended."""
        with self._lock:
            if self._process is not None:
                self._stop()

    def forget(self) -> None:
        """For a process that was forked from the one whose child this is: the other goes on with it."""
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
            self._requests.close()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._requests, theirs = socket.socketpair()
        with theirs:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "onnxbisect_worker.fork_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**self._environment, **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C is for the worker, who ends its hosts
            )

    def _stop(self) -> tuple[int, str]:
        """End the process; how it ended, as a number and in words."""
        process, self._process = cast("subprocess.Popen[bytes]", self._process), None
        self._requests.close()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with cast("IO[bytes]", process.stderr) as printed:
            return process.returncode, f"that starts readers of models {obituary(process.returncode, printed.read())}"


def _first_line(read: int) -> int:
    """The number on it, 0 where there is none."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(read, 1)
        if not byte:
            return 0
        line += byte
    return int(line)
