"""Starts a compiler with limits, and returns its result; no process of it outlives the call.

Each run has a supervisor process (`supervise.py`), which kills by descent, not by process group, so that it also finds
a compiler that daemonises. It dies, and kills the compiler, when this process ends in any way. This is complete on
Linux; elsewhere only the compiler's process group is killed.
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from onnxbisect.errors import ShortageError, shortage
from onnxbisect.language import english
from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.sandbox.confined_view import confined_view

#: Free bytes below which a disk counts as full: the write that failed may have been larger.
_FULL = 64 << 10
_ELSEWHERE = english("make room there, or let TMPDIR name another place (ONNXBISECT_WORK for a worker).")
#: A compile with at least this fraction (1/10) of a full disk has filled it.
_SHARE = 10
#: Files that a cut or its checks may have open at a time.
_FILES = 8

#: The C library's messages for a full disk.
_WORDS = re.compile(r"No space left on device|Disk quota exceeded")


def disk_trouble(workdir: Path, log: str) -> str:
    """Why a full disk may be the cause of a compile's failure, as a sentence; empty if it is not.

    The compile has filled the disk of its work directory, or `log` reports a full disk: programs remove incomplete
    files, so there may be space again when they have ended. Raises ShortageError if other files fill the disk, or if
    the work directory is not writable.
    """
    state = os.statvfs(workdir)
    free = state.f_bfree if os.geteuid() == 0 else state.f_bavail
    if state.f_blocks and free * state.f_frsize < _FULL:
        written = (Path(at, name).lstat() for at, _, names in os.walk(workdir) for name in names)
        if sum(status.st_blocks * 512 for status in written) * _SHARE < state.f_blocks * state.f_frsize:
            raise ShortageError(f"The disk for temporary files is full: {_ELSEWHERE}")
        return f"The compiler filled the disk for temporary files: {_ELSEWHERE}"
    if not os.access(workdir, os.W_OK):
        raise ShortageError(f"The folder for temporary files cannot be written to: {_ELSEWHERE}")
    if said := _WORDS.search(log):
        return f"The compiler could not write ({said[0]}): {_ELSEWHERE}"
    return ""


def demand_plenty(folder: Path, error: BaseException | None = None) -> None:
    """Raise ShortageError if the machine, not the model, caused an error in the folder.

    It did if the error says so, or if no files can be written or opened there.
    """
    found = None if error is None else shortage(error)
    try:
        path = folder / "room"
        path.write_bytes(bytes(_FULL))
        path.unlink()
        for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(_FILES)]:
            os.close(descriptor)
    except OSError as failed:
        found = found or shortage(failed)
    if found is not None:
        raise found from error


_SUPERVISOR = Path(__file__).with_name("supervise.py")

#: Variables of the user's environment that every compiler needs to start, and for the encoding.
_ALWAYS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")

#: Seconds after the time limit when the supervisor itself counts as dead.
_GRACE = 30.0

#: The C library's message for a write to a read-only place.
_READ_ONLY = "Read-only file system"

#: Most files listed of one work directory.
_MOST_ARTIFACTS = 10_000

_lock = threading.Lock()


class CompileGroup:
    """Compiles that can be ended separately: those that a thread starts within `joined`."""

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Compiles that this thread starts within the context belong to the group."""
        token = _group.set(self)
        try:
            yield
        finally:
            _group.reset(token)

    def kill(self) -> None:
        """Like `kill_running`, for this group."""
        _terminate(lambda group: group is self)


_group: ContextVar[CompileGroup | None] = ContextVar("group", default=None)
_running: dict[subprocess.Popen[bytes], CompileGroup | None] = {}


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    limits: Limits,
    network: bool | None = None,
    reads: Sequence[Path] = (),
    isolated: bool = True,
) -> Outcome:
    """Run one command to its end or to a limit; standard input is empty, both outputs are the log.

    `env` is the whole environment. Without `network` the command has only a loopback interface, if the kernel allows
    it: for tools that report to their vendor and need no licence server. None: it has no network if `limits` confine
    it. A confined command sees the folders `reads` in addition to those of `confined_view`. A command that is not
    `isolated` must see the machine, such as the client of a daemon; it is not run if isolation is required.

    Never raises because of the command; one that cannot be started, or was ended by `kill_running`, returns as
    `broken`. `exit_code` is the command's own; the judge interprets a wrapper's 139. The caller collects artifacts with
    `with_artifacts`, because only it knows where the command writes.
    """
    found = find_executable(argv[0], cwd=cwd, path=env.get("PATH"))
    if found is None:
        return Outcome(broken=not_found(argv[0]))
    confinement = limits.confinement
    if confinement is not None and not isolated:
        if confinement.required:
            return Outcome(broken=f"'{argv[0]}' is not run: it cannot be isolated, and here compilers have to be.")
        confinement = None
    order = {
        "argv": list(argv),
        "path": found,
        "cwd": str(cwd),
        "env": dict(env),
        "seconds": limits.wall_seconds,
        "memory_bytes": limits.memory_bytes,
        "file_bytes": limits.file_bytes,
        "log_bytes": limits.log_bytes,
        "network": confinement is None if network is None else network,
        "view": None if confinement is None else confined_view(confinement, [found], cwd=cwd, env=env, reads=reads),
    }
    answer = _ask_supervisor(json.dumps(order).encode() + b"\n", time.monotonic() + limits.wall_seconds + _GRACE)
    head, _, log = answer.partition(b"\n")
    if not head:
        what = f"The process that watches over '{argv[0]}' was killed; nothing is known of the compile."
        return Outcome(broken=what, interrupted=True)
    outcome = _outcome(json.loads(head), log.decode(errors="replace"), argv[0])
    if confinement is not None and outcome.exit_code and _READ_ONLY in outcome.log:
        reason = f"'{argv[0]}' failed, and wrote where an isolated compile may not: outside of its work directory."
        return replace(outcome, exit_code=None, broken=reason)
    return outcome


def kill_running() -> None:
    """End every compile that this process is waiting for, and what is `killable`; `run` calls return with `broken`.

    For a driver whose threads are in `run` when the user presses Ctrl-C.
    """
    _terminate(lambda group: True)


@contextlib.contextmanager
def killable(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let `kill_running` end a process that no supervisor watches, within the context."""
    with _lock:
        _running[process] = _group.get()
    try:
        yield
    finally:
        with _lock:
            del _running[process]


class AnsweringProcess:
    """A process that answers orders, each a line of JSON; no supervisor watches it, so `end` must be called."""

    def __init__(self, command: Sequence[str], *, stderr: int = subprocess.DEVNULL, **popen: Any) -> None:
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, start_new_session=True, **popen)

    @property
    def alive(self) -> bool:
        """Whether it takes orders."""
        return self.popen.poll() is None

    def ask(self, order: Mapping[str, object] | None, seconds: float) -> dict[str, Any] | None:
        """The answer to an order, or what the process says at first; None if it has ended, or else the time is up."""
        orders, answers = _pipes(self.popen)
        if order is not None:
            with contextlib.suppress(BrokenPipeError):  # reading shows that it has ended
                orders.write(json.dumps(order).encode() + b"\n")
                orders.flush()
        line, deadline = bytearray(), time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([answers], [], [], left)[0]:
                data = os.read(answers.fileno(), 1 << 16)
                if not data:
                    self.popen.wait()
                    return None
                line += data
                if line.endswith(b"\n"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        return None

    def end(self) -> None:
        """Kill it and its children; may be called again."""
        orders, answers = _pipes(self.popen)
        if not answers.closed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
            answers.close()
            with contextlib.suppress(BrokenPipeError):
                orders.close()


def _terminate(chosen: Callable[[CompileGroup | None], bool]) -> None:
    with _lock:
        for supervisor, group in _running.items():
            if chosen(group):
                supervisor.terminate()


def clean_env(workdir: Path, *, inherit: Sequence[str] = (), extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without information about the user: home and temporary files are in `workdir`.

    onnxruntime, which many compilers include, sends model names and hashes as telemetry since 1.29 unless disabled.
    `inherit` names variables to copy from this process if they are set; `extra` overrides everything.
    """
    home = {name: str(workdir) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    return {**home, "ORT_DISABLE_TELEMETRY": "1", **inherited((*_ALWAYS, *inherit)), **(extra or {})}


def inherited(names: Sequence[str]) -> dict[str, str]:
    """The variables with these names that are set in this process's environment."""
    return {name: os.environ[name] for name in names if name in os.environ}


def written(workdir: Path) -> tuple[Path, ...]:
    """The non-empty regular files below `workdir`, as sorted relative paths; links are ignored."""
    found: list[Path] = []
    for folder, folders, files in os.walk(workdir):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and path.stat().st_size:
                found.append(path.relative_to(workdir))
        if len(found) >= _MOST_ARTIFACTS:
            break
    return tuple(found[:_MOST_ARTIFACTS])


def with_artifacts(outcome: Outcome, probe: Path, workdir: Path, tool: Path | None = None) -> Outcome:
    """The outcome with its artifacts, and with `model.onnx` and `.` in its log in place of absolute paths.

    Paths differ between compiles; without them the same compile has the same log everywhere. Paths below `tool`, the
    compiler's installation, are shortened, too. `probe` is the path that the command got; if it is in `workdir`, it is
    no artifact. A compile that filled the disk, or met a full one, returns as `broken`; ShortageError if the disk is
    full of other files.
    """
    if not outcome.broken and (trouble := disk_trouble(workdir, "" if outcome.exit_code == 0 else outcome.log)):
        outcome = replace(outcome, broken=trouble, short=True, exit_code=None, signal=None)
        outcome = replace(outcome, timed_out=False, over_memory=False)
    log = outcome.log.replace(str(probe), "model.onnx").replace(str(workdir), ".")
    log = log if tool is None else log.replace(f"{tool}/", "")
    artifacts = tuple(path for path in written(workdir) if workdir / path != probe)
    return replace(outcome, log=log, artifacts=artifacts)


def find_executable(command: str, *, cwd: Path, path: str | None) -> str | None:
    """The file that a shell in `cwd` would start for `command`; None if there is none."""
    if "/" in command:
        full = cwd / command
        return str(full) if full.is_file() and os.access(full, os.X_OK) else None
    found = shutil.which(command, path=path)
    return str(Path(found).absolute()) if found else None


def not_found(command: str, install: str = "") -> str:
    """The sentence for a command that `find_executable` does not find; `install` says what to install."""
    if install and "/" in command:
        return english("The command '{command}' was not found; install {what}.", command=command, what=install)
    if install:
        return english("The command '{command}' was not found on PATH; install {what}.", command=command, what=install)
    if "/" in command:
        return english(
            "'{command}' is not a file that can be executed; check the path and its permissions (chmod +x).",
            command=command,
        )
    return english("The command '{command}' was not found on PATH; install it or give its full path.", command=command)


def _ask_supervisor(order: bytes, deadline: float) -> bytes:
    """The supervisor's answer; incomplete, perhaps empty, if it died or did not answer."""
    supervisor = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_SUPERVISOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    with _lock:
        _running[supervisor] = _group.get()
    try:
        return _converse(supervisor, order, deadline)
    finally:
        # also after Ctrl-C: closing its standard input makes the supervisor kill the compiler
        orders, answers = _pipes(supervisor)
        with contextlib.suppress(BrokenPipeError):
            orders.close()
        answers.close()
        try:
            supervisor.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        with _lock:
            del _running[supervisor]


def _converse(supervisor: subprocess.Popen[bytes], order: bytes, deadline: float) -> bytes:
    orders, answers = _pipes(supervisor)
    try:
        orders.write(order)
        orders.flush()
    except BrokenPipeError:
        return b""
    answer = bytearray()
    source = answers.fileno()
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            data = os.read(source, 1 << 20)
            if not data:
                return bytes(answer)
            answer += data
    return b""


def _pipes(supervisor: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    return cast("IO[bytes]", supervisor.stdin), cast("IO[bytes]", supervisor.stdout)


def _outcome(head: dict[str, Any], log: str, command: str) -> Outcome:
    broken = ""
    if head["complaint"]:
        broken = f"The command '{command}' {head['complaint']}."
    elif head["survivors"]:
        broken = f"{head['survivors']} processes of '{command}' could not be killed; the machine needs a look."
    elif head["cancelled"]:
        broken = f"The compile by '{command}' was stopped before it ended."
    known = {"seconds": head["seconds"], "peak_memory": head["peak_memory"]}
    text = {"log": log, "log_truncated": head["truncated"]}
    if broken:
        return Outcome(broken=broken, interrupted=head.get("cancelled", False), **known, **text)
    if head["over_memory"]:
        return Outcome(signal=9, over_memory=True, **known, **text)
    if head["timed_out"]:
        return Outcome(timed_out=True, **known, **text)
    return Outcome(exit_code=head["exit_code"], signal=head["signal"], **known, **text)


def oom_kills() -> int:
    """The number of processes killed for lack of memory of the machine or a container; 0 if the kernel does not count.

    A process that ended by SIGKILL while this count grew was most likely killed for that; otherwise another process
    killed it.
    """
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)
