"""Children that another process forks for this one: see `fork_server`, which is at the other end."""

import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock


class Forked:
    """A child of another process. Any thread may look at it, wait for it, or kill it."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        #: As `Popen.returncode`; None while it lives. That of SIGKILL where its parent was killed, with which it dies.
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

    def _heard(self, seconds: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and self._ending.poll(None if seconds is None else seconds * 1000):
                self._end(int(os.read(self._told, 32) or -signal.SIGKILL))
            return self.returncode

    def _end(self, code: int) -> None:
        self.returncode = code
        os.close(self._told)


def forked(requests: socket.socket, descriptors: Sequence[int], seconds: float) -> Forked | None:
    """A child, with copies of these descriptors, of the process that reads these requests. None where that process has
    ended, or does not answer for so many seconds; OSError where it cannot fork.
    """
    read, told = os.pipe()
    with suppress(OSError):  # nobody reads them any more
        socket.send_fds(requests, [b"."], [*descriptors, told])
    os.close(told)
    pid = _first_line(read, seconds)
    if pid > 0:
        return Forked(pid, read)
    os.close(read)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return None


def _first_line(read: int, seconds: float) -> int:
    """The number on it, 0 where none comes."""
    coming = select.poll()
    coming.register(read, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(read, 1) if coming.poll(seconds * 1000) else b""
        if not byte:
            return 0
        line += byte
    return int(line)
