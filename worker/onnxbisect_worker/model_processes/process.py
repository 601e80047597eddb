"""Starts model processes, talks with them, and leaves nothing of them when they are over. `server` is the other end."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from onnxbisect_backends.sandbox.oom import oom_kills
from onnxbisect_worker.held_folders import hold, remove, remove_held
from onnxbisect_worker.model_processes.protocol import ProcessKilledError, ProcessLostError

#: Seconds in which the fork server imports everything, on a machine that has much to do.
_STARTING = 60.0
#: Seconds in which a process that was told to end has ended, with its compilers.
_PATIENCE = 5.0
#: Bytes kept of what a process printed, and characters of its last line that are told.
_KEPT, _TOLD = 4096, 300
#: Bytes of an answer, more than the largest model makes: one that was taken over is not to fill the memory of this one.
_LONGEST = 1 << 30
#: Signals that a process does not send itself, but people, and systems that stop.
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class ForkServer:
    """The process that model processes are forked from. It imports while the worker starts, and there is another one
    after its end. The one of `multiprocessing` would pass on the worker's environment, with its passwords.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, "OPENBLAS_NUM_THREADS": "1"}  # what has threads cannot be forked safely
        self._lock = Lock()
        self._start()

    def fork(self, *descriptors: int) -> None:
        """Fork a process that gets copies of these descriptors. ProcessKilledError where the server cannot start."""
        with self._lock:
            if self._ready and self._process.poll() is not None:
                self._stop()
                self._start()
            if not self._ready:
                self._wait_until_ready()
            with suppress(OSError):  # it was just killed: the descriptors are closed, as if the new process were
                socket.send_fds(self._requests, [b"."], descriptors)

    def close(self) -> None:
        """End it. The processes that it has forked live on."""
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
                start_new_session=True,  # Ctrl-C is for the worker, which ends its processes
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
        """End it, unless it ends by itself within so many seconds; what it has printed."""
        self._requests.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
        _, printed = self._process.communicate()
        return printed


class ChildProcess:
    """A model process with a folder of its own. One thread talks with it; any thread may end it.

    What it prints goes to one pipe, how it ended to another, which is closed when its folder is gone.
    """

    def __init__(self, folder: Path, server: ForkServer, *, seconds: float) -> None:
        """`seconds` are those that the process gives itself for one request. ProcessKilledError where it cannot be
        started.
        """
        self.folder = folder
        self._seconds = seconds
        self._printed = self._code = b""
        self._told_to_end = False
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
        """Whether it can be asked for something."""
        return not self._told_to_end and not _readable(self._status, 0)

    def tell(self, message: object) -> None:
        """Send something that has no answer."""
        with suppress(OSError):  # `ask` will say why
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; ProcessLostError where none comes."""
        kills = oom_kills()
        self.tell(request)
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
        return answer

    def end(self) -> None:
        """End it and its compiles, and remove its folder; a thread that waits in `ask` gets ProcessLostError."""
        self._told_to_end = True
        self._gone()

    def close(self) -> None:
        """Let go of the descriptors, once nobody waits any more."""
        self._socket.close()
        os.close(self._output)
        os.close(self._status)

    def _line(self) -> bytes:
        """The answer; without its end where the process ended first. What is printed meanwhile is read, too."""
        line = bytearray()
        poll = select.poll()
        for it in (self._socket.fileno(), self._output, self._status):
            poll.register(it, select.POLLIN)
        while not line.endswith(b"\n"):
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
        return bytes(line)

    def _hear(self) -> bool:
        data = os.read(self._output, 1 << 16)
        self._printed = (self._printed + data)[-_KEPT:]
        return bool(data)

    def _gone(self) -> int | None:
        """Wait for its end, which comes now at the latest, and for that of its folder. How it ended, as
        `Popen.returncode` has it; None where the process was killed that tells it.
        """
        with suppress(OSError):  # the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._ending:
            give_up = time.monotonic() + _PATIENCE
            while _readable(self._status, max(give_up - time.monotonic(), 0)) and (told := os.read(self._status, 32)):
                self._code += told
            # where nobody was left to do this, a compiler is dying, and may still write
            while not remove(self.folder) and time.monotonic() < give_up:
                time.sleep(0.01)
            return int(self._code) if self._code else None

    def _lost(self, kills: int) -> ProcessLostError:
        """Why there is no answer. Before the question, the kernel had killed so many processes for lack of memory."""
        if self._told_to_end:
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
    """Whether there is something to read within so many seconds, or the other end is gone."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _description(code: int | None, printed: bytes) -> str:
    """What follows "The process ...": of what it returned, as `Popen.returncode` has it, and its last words."""
    if code is None:
        how = "was killed"
    else:
        how = f"was killed by {_name(-code)}" if code < 0 else f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", perhaps because the machine ran out of memory"
    last = [line for line in printed.decode(errors="replace").splitlines() if line.strip()][-1:]
    words = "".join(character if character.isprintable() else " " for character in "".join(last)).strip()
    return f"{how}; its last words were: {words[:_TOLD].rstrip('.')}." if words else f"{how}."


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
