"""Starts a compiler, bounds it, and brings home what it said; nothing of it outlives the call.

Each run has a supervisor process of its own (`supervise.py`), which kills by descent, not by process group: a
compiler that daemonises is found all the same. It also dies, and takes the compiler with it, when this process
does, however that happens. Linux does all of this; elsewhere only the compiler's process group is killed.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from onnxbisect_backends.contract import Limits, Outcome
from onnxbisect_backends.sandbox.confined_view import confined_view
from onnxbisect_backends.sandbox.disk import disk_trouble

_SUPERVISOR = Path(__file__).with_name("supervise.py")

#: Of the user's environment, what every compiler needs to start and to speak the user's encoding.
_ALWAYS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")

#: Seconds past the time limit after which the supervisor itself is taken for dead.
_GRACE = 30.0

#: What a program says, in the words of the C library, that writes where it may only read.
_READ_ONLY = "Read-only file system"

#: Files listed of one work directory; a compiler that writes more is not worth listing.
_MOST_ARTIFACTS = 10_000

_lock = threading.Lock()


class CompileGroup:
    """Compiles that can be ended apart from all others of this process: those that a thread starts within `joined`."""

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Within, what this thread starts belongs to the group."""
        token = _group.set(self)
        try:
            yield
        finally:
            _group.reset(token)

    def kill(self) -> None:
        """What `kill_running` does, for this group."""
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

    `env` is the whole environment. Without `network` the command has a loopback of its own and nothing else, where
    the kernel lets us take the rest away: for tools that report to their vendor and need no licence server. None: it
    is taken away where `limits` confine the command, too. A confined command sees the folders `reads` wherever they
    are, besides what `confined_view` knows that it needs. Not `isolated` is one that must see the machine, such as
    the client of a daemon; where isolation is required, it is not run.
    Never raises for what the command does; a command that cannot be started, or a run that was cut short by
    `kill_running`, comes back as `broken`. `exit_code` is as the command gave it: that a wrapper's 139 means a crash
    inside it is for the judge to say. Artifacts are left for the caller, by `brought_home`, because only the caller
    knows where the command was told to write.
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
    """End every compile that this process is waiting for; their `run` calls return with `broken`.

    For a driver whose threads sit in `run` when the user presses Ctrl-C.
    """
    _terminate(lambda group: True)


def _terminate(chosen: Callable[[CompileGroup | None], bool]) -> None:
    with _lock:
        for supervisor, group in _running.items():
            if chosen(group):
                supervisor.terminate()


def clean_env(workdir: Path, *, inherit: Sequence[str] = (), extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment that tells a compiler nothing about this user: home and temporary files are in `workdir`.

    onnxruntime, which many compilers carry, reports model names and hashes home since 1.29 unless told not to.
    `inherit` names variables to take over from this process where they are set; `extra` wins over everything.
    """
    home = {name: str(workdir) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    return {**home, "ORT_DISABLE_TELEMETRY": "1", **inherited((*_ALWAYS, *inherit)), **(extra or {})}


def inherited(names: Sequence[str]) -> dict[str, str]:
    """Of this process's environment, the variables of these names that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def written(workdir: Path) -> tuple[Path, ...]:
    """The non-empty regular files below `workdir`, relative to it, in order; links are neither listed nor followed."""
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


def brought_home(outcome: Outcome, probe: Path, workdir: Path, tool: Path | None = None) -> Outcome:
    """The outcome with its artifacts, and with `model.onnx` and `.` in its log where absolute paths stood.

    Paths of one compile differ from those of the next; without them the same compile has the same log everywhere.
    Nor are those of files below `tool`, the folder where the compiler is installed, anybody's but this user's.
    `probe` is the path that the command was given; where it is in `workdir`, it is no artifact. A compile that
    filled the disk, or met a full one, comes back as `broken`; ShortageError where the disk is full of other things.
    """
    if not outcome.broken and (trouble := disk_trouble(workdir, "" if outcome.exit_code == 0 else outcome.log)):
        outcome = replace(outcome, broken=trouble, short=True, exit_code=None, signal=None)
        outcome = replace(outcome, timed_out=False, over_memory=False)
    log = outcome.log.replace(str(probe), "model.onnx").replace(str(workdir), ".")
    log = log if tool is None else log.replace(f"{tool}/", "")
    artifacts = tuple(path for path in written(workdir) if workdir / path != probe)
    return replace(outcome, log=log, artifacts=artifacts)


def find_executable(command: str, *, cwd: Path, path: str | None) -> str | None:
    """The file that `command` starts, as a shell in `cwd` would find it; None where there is none."""
    if "/" in command:
        full = cwd / command
        return str(full) if full.is_file() and os.access(full, os.X_OK) else None
    found = shutil.which(command, path=path)
    return str(Path(found).absolute()) if found else None


def not_found(command: str, install: str = "") -> str:
    """The sentence for a command that `find_executable` does not find; `install` is what to install for it."""
    if install:
        return f"The command '{command}' was not found{'' if '/' in command else ' on PATH'}; install {install}."
    if "/" in command:
        return f"'{command}' is not a file that can be executed; check the path and its permissions (chmod +x)."
    return f"The command '{command}' was not found on PATH; install it or give its full path."


def _ask_supervisor(order: bytes, deadline: float) -> bytes:
    """Everything that the supervisor answered; cut short, hence perhaps nothing, if it died or went silent."""
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
        # reached by Ctrl-C too: the end of its standard input tells the supervisor to kill the compiler
        _close(supervisor)
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


def _close(supervisor: subprocess.Popen[bytes]) -> None:
    orders, answers = _pipes(supervisor)
    with contextlib.suppress(BrokenPipeError):
        orders.close()
    answers.close()
    try:
        supervisor.wait(timeout=_GRACE)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


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
