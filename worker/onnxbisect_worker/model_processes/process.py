"""Starts model processes, exchanges messages with them, and removes all traces when they end. `server` is the other
end.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from onnxbisect_backends.sandbox.process import oom_kills
from onnxbisect_worker.model_requests.layout import hold, remove, remove_held
from onnxbisect_worker.model_requests.protocol import ProcessKilledError, ProcessLostError

#: Seconds for the fork server's imports on a busy machine.
_STARTING = 60.0
#: Seconds for a process to end with its compilers.
_PATIENCE = 5.0
#: Bytes of output that are kept, and characters of its last line that are reported.
_KEPT, _TOLD = 4096, 300
#: Most bytes of an answer, so that a process that was taken over cannot fill this one's memory.
_LONGEST = 1 << 30
#: Signals sent by people and by systems that shut down, not by the process itself.
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class ForkServer:
    """The process that model processes are forked from. It imports while the worker starts, and is restarted after it
    ends.

    `multiprocessing`'s forkserver would pass on the worker's environment, with its passwords.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, "OPENBLAS_NUM_THREADS": "1"}  # forking a process with threads is unsafe
        self._lock = Lock()
        self._start()

    def fork(self, *descriptors: int) -> None:
        """Fork a process that gets copies of these descriptors. ProcessKilledError if the server cannot start."""
        with self._lock:
            if self._ready and self._process.poll() is not None:
                self._stop()
                self._start()
            if not self._ready:
                self._wait_until_ready()
            with suppress(OSError):  # it was just killed; the descriptors are closed, as if the new process had ended
                socket.send_fds(self._requests, [b"."], descriptors)

    def close(self) -> None:
        """End the server. The processes that it forked continue."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        self._requests, theirs = socket.socketpair()
        self._ready = False
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "onnxbisect_worker.model_processes.server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,  # only the worker handles Ctrl-C, and ends its processes
            )

    def _wait_until_ready(self) -> None:
        self._requests.settimeout(_STARTING)
        with suppress(OSError):
            self._ready = bool(self._requests.recv(1))
        if not self._ready:
            printed = self._stop(_PATIENCE)
            how = _description(self._process.returncode, printed)
            self._start()
            raise ProcessKilledError(
                f"No process could be started that reads the model: the process that starts them {how}"
            )

    def _stop(self, seconds: float = 0.0) -> bytes:
        """End it after it had so many seconds to end by itself; returns its output."""
        self._requests.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
        _, printed = self._process.communicate()
        return printed


class ChildProcess:
    """A model process with a folder of its own. One thread exchanges messages with it; any thread may end it.

    Its output goes to one pipe and its exit description to another, which is closed when its folder is removed.
    """

    def __init__(self, folder: Path, server: ForkServer, *, seconds: float) -> None:
        """`seconds` is the process's limit for one request. ProcessKilledError if it cannot start."""
        self.folder = folder
        self._seconds = seconds
        self._printed = self._code = self._received = b""
        self._end_requested = False
        self._ending = Lock()
        try:
            lock = hold(folder)
        except OSError as error:
            raise ProcessKilledError(f"No process could be started that reads the model: {error.strerror}.") from error
        self._socket, channel = socket.socketpair()
        (self._output, output), (self._status, status) = os.pipe(), os.pipe()
        try:
            server.fork(channel.fileno(), output, status, lock)
        except ProcessKilledError:
            remove_held(folder)
            self.close()
            raise
        finally:
            channel.close()
            for it in (output, status, lock):
                os.close(it)

    @property
    def alive(self) -> bool:
        """Whether it can take requests."""
        return not self._end_requested and not _readable(self._status, 0)

    def tell(self, message: object) -> None:
        """Send a message that has no answer."""
        with suppress(OSError):  # `ask` reports the reason
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, request: Mapping[str, Any], told: Callable[[object], None] | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer; ProcessLostError if there is none.

        `told` is called with each message before the answer.
        """
        kills = oom_kills()
        self.tell(request)
        while True:
            line = self._line()
            if not line.endswith(b"\n"):
                raise self._lost(kills)
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                answer = None
            if not isinstance(answer, dict):
                self.end()
                raise ProcessLostError("The process that had the model gave an answer that is none.")
            if "told" not in answer or told is None:
                return answer
            told(answer["told"])

    def end(self) -> None:
        """End it and its compiles, and remove its folder; a thread that waits in `ask` gets ProcessLostError."""
        self._end_requested = True
        self._gone()

    def close(self) -> None:
        """Close the descriptors, once no thread waits any more."""
        self._socket.close()
        os.close(self._output)
        os.close(self._status)

    def _line(self) -> bytes:
        """The answer, incomplete if the process ended first. Its output is read meanwhile."""
        line = bytearray(self._received)
        poll = select.poll()
        for it in (self._socket.fileno(), self._output, self._status):
            poll.register(it, select.POLLIN)
        while b"\n" not in line:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._output in ready and not self._hear():
                poll.unregister(self._output)
            if self._socket.fileno() in ready:
                try:
                    data = self._socket.recv(1 << 20)
                except OSError:
                    data = b""
                line += data
                if not data or len(line) > _LONGEST:
                    return b""
            elif self._status in ready:
                return b""
        first, end, self._received = bytes(line).partition(b"\n")
        return first + end

    def _hear(self) -> bool:
        data = os.read(self._output, 1 << 16)
        self._printed = (self._printed + data)[-_KEPT:]
        return bool(data)

    def _gone(self) -> int | None:
        """Wait for its end and the removal of its folder. Returns its exit code as `Popen.returncode`.

        None if the process that reports it was killed.
        """
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._ending:
            give_up = time.monotonic() + _PATIENCE
            while _readable(self._status, max(give_up - time.monotonic(), 0)) and (told := os.read(self._status, 32)):
                self._code += told
            # if the keeper is gone, a dying compiler may still write
            while not remove(self.folder) and time.monotonic() < give_up:
                time.sleep(0.01)
            return int(self._code) if self._code else None

    def _lost(self, kills: int) -> ProcessLostError:
        """Why there is no answer. `kills` is the kernel's count of out-of-memory kills before the request."""
        if self._end_requested:
            return ProcessKilledError("The process that had the model was told to end.")
        code = self._gone()
        while _readable(self._output, 0) and self._hear():
            pass
        if code == -signal.SIGALRM:
            return ProcessLostError(
                f"The model was given up after {self._seconds:g} seconds, which is the longest that reading one, or "
                f"its report, may take here (ONNXBISECT_MODEL_SECONDS)."
            )
        from_outside = code is None or (-code in _OUTSIDE and oom_kills() == kills)
        kind = ProcessKilledError if from_outside else ProcessLostError
        return kind(f"The process that had the model {_description(code, self._printed)}")


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether there is data, or the end of the stream, within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _description(code: int | None, printed: bytes) -> str:
    """The text after "The process ...": its exit code, as `Popen.returncode`, and its last output."""
    if code is None:
        how = "was killed"
    elif code < 0:
        how = f"was killed by {({it.value: it.name for it in signal.Signals}).get(-code, f'signal {-code}')}"
    else:
        how = f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", perhaps because the machine ran out of memory"
    last = [line for line in printed.decode(errors="replace").splitlines() if line.strip()][-1:]
    words = "".join(character if character.isprintable() else " " for character in "".join(last)).strip()
    return f"{how}; its last words were: {words[:_TOLD].rstrip('.')}." if words else f"{how}."
