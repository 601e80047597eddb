"""Starts the process that has a model, talks with it, and leaves nothing of it when it is over."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from onnxbisect_backends.sandbox.oom import oom_kills
from onnxbisect_worker.held_folders import hold, remove, remove_held
from onnxbisect_worker.model_processes.contract import ProcessKilledError, ProcessLostError
from onnxbisect_worker.model_processes.exit_description import exit_description, from_outside
from onnxbisect_worker.model_processes.fork_client import ForkServer

#: Seconds in which a process must be gone that was told to end; then it is killed, and the kernel tells its compilers.
_PATIENCE = 0.7
#: Bytes kept of what it printed.
_KEPT = 4096
#: Bytes of an answer, more than the largest model makes: one that was taken over is not to fill the memory of this one.
_LONGEST = 1 << 30


class ChildProcess:
    """A child process with a folder of its own. One thread talks with it; any thread may end it."""

    def __init__(self, folder: Path, server: ForkServer, *, seconds: float) -> None:
        """`seconds` are those that the process gives itself for one request. Raises what `ForkServer.fork` does."""
        self.folder = folder
        self._seconds = seconds
        self._printed = b""
        self._ended = False
        self._ending = Lock()
        lock = hold(folder)
        self._socket, channel = socket.socketpair()
        self._output, output = os.pipe()
        try:
            self._process = server.fork(channel.fileno(), output, lock)
        except (OSError, ProcessLostError):
            self.close()
            remove_held(folder)
            raise
        finally:
            channel.close()
            for it in (output, lock):
                os.close(it)

    @property
    def alive(self) -> bool:
        """Whether it can be asked for something."""
        return not self._ended and self._process.poll() is None

    @property
    def memory(self) -> int:
        """Bytes that would be free without it, at most: it shares some with others; 0 where the system is silent."""
        try:
            pages = Path(f"/proc/{_last(self._process.pid)}/statm").read_text().split()
        except OSError:
            return 0
        return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send something that has no answer."""
        with suppress(OSError):  # `ask` will say why
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; ProcessLostError where none comes."""
        kills = oom_kills()
        self.tell(request)
        line = self._line()
        if not line.endswith(b"\n"):
            told = self._ended
            what = self._exit_description()
            shot = from_outside(self._process.returncode) and oom_kills() == kills
            raise ProcessKilledError(what) if told or shot else ProcessLostError(what)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            self.end()
            raise ProcessLostError("The process that had the model gave an answer that is none.")
        return answer

    def end(self) -> None:
        """End it, its compiles and its folder; whoever waits in `ask` gets ProcessLostError."""
        self._ended = True
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._ending:
            try:
                self._process.wait(_PATIENCE)
            except TimeoutError:
                self._process.kill()
                self._process.wait()
            give_up = time.monotonic() + _PATIENCE
            # a compiler that has lost its process is dying, and may still write
            while not remove(self.folder) and time.monotonic() < give_up:
                time.sleep(0.01)

    def close(self) -> None:
        """Let go of the descriptors, once nobody waits any more."""
        self._socket.close()
        os.close(self._output)

    def _line(self) -> bytes:
        """The answer; without its end where the process ended first. What is printed meanwhile is read, too."""
        line = bytearray()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._output:
                    if not self._hear():
                        poll.unregister(descriptor)
                    continue
                try:
                    data = self._socket.recv(1 << 20)
                except OSError:
                    data = b""
                line += data
                if len(line) > _LONGEST:
                    self.end()
                    return b""
                if not data or data.endswith(b"\n"):
                    return bytes(line)

    def _hear(self) -> bool:
        data = os.read(self._output, 1 << 16)
        self._printed = (self._printed + data)[-_KEPT:]
        return bool(data)

    def _exit_description(self) -> str:
        """Why there is no answer."""
        if self._ended:
            return "The process that had the model was told to end."
        try:
            code = self._process.wait(_PATIENCE)
        except TimeoutError:
            self.end()
            code = self._process.wait()
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        while poll.poll(0) and self._hear():
            pass
        if code == -signal.SIGALRM:
            return (
                f"The model was given up after {self._seconds:g} seconds, which is the longest that reading one, or "
                f"its report, may take here (ONNXBISECT_MODEL_SECONDS)."
            )
        return f"The process that had the model {exit_description(code, self._printed)}"


def _last(pid: int) -> int:
    """The process at the end of a line of only children: one that is confined is the forked process's grandchild."""
    while below := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(below[0])
    return pid
