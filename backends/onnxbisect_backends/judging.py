"""The part of judging an outcome that is the same for every compiler that is a process."""

import re
import signal as signals

from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Outcome
from onnxbisect_backends.logs import Reading

#: What shells and wrappers exit with when the program inside died of SIGABRT, SIGFPE or SIGSEGV. No other status
#: above 128 is read as a signal: compilers use those for themselves.
_CRASHES = {134: signals.SIGABRT, 136: signals.SIGFPE, 139: signals.SIGSEGV}

_TOO_LARGE = signals.SIGXFSZ

#: The last words of a program that was given no memory: Python's, numpy's, C++'s, LLVM's.
_NO_MEMORY = re.compile(
    r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|^terminate called after throwing an instance of 'std::bad_alloc'"
    r"|^ *what\(\): +std::bad_alloc|^LLVM ERROR: out of memory",
    re.MULTILINE,
)

#: How a wrapper reports that the program inside was killed.
_KILLED = 137
#: Signals that programs do not send themselves, but people, and systems that stop.
_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT)


def killed_from_outside(outcome: Outcome) -> bool:
    """Whether another process ended the compile, or the kernel because memory ran out."""
    shot = outcome.signal in _OUTSIDE or outcome.exit_code == _KILLED
    return outcome.interrupted or (shot and not outcome.over_memory)


def unfinished(outcome: Outcome) -> Verdict | None:
    """The verdict where the compile says nothing about the model: never started, stopped, timed out, shot, or
    refused memory.

    Nobody but we, the kernel for want of memory, and an administrator sends SIGKILL, or SIGTERM; where it was not we,
    the same compile may well end on another day, or with fewer beside it.
    """
    if outcome.broken:
        kind = Kind.RESOURCE if outcome.short else Kind.ERROR
        return Verdict(status=Status.UNRESOLVED, kind=kind, message=outcome.broken, seconds=outcome.seconds)
    if outcome.timed_out:
        message = f"Still compiling after {outcome.seconds:.0f} seconds, then killed; raise the time limit to know."
        return Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT, message=message, seconds=outcome.seconds)
    if killed_from_outside(outcome):
        message = (
            f"Killed from outside, holding {outcome.peak_memory >> 20} MB: mostly the kernel's way when memory runs "
            f"out; try fewer compiles at a time, or more memory."
        )
        return Verdict(status=Status.UNRESOLVED, kind=Kind.RESOURCE, message=message, seconds=outcome.seconds)
    if not outcome.over_memory and outcome.exit_code != 0 and _NO_MEMORY.search(outcome.log):
        message = (
            f"Was refused memory, holding {outcome.peak_memory >> 20} MB; try fewer compiles at a time, or more memory."
        )
        return Verdict(status=Status.UNRESOLVED, kind=Kind.RESOURCE, message=message, seconds=outcome.seconds)
    return None


def crashed(outcome: Outcome, reading: Reading) -> Verdict | None:
    """The verdict where the compiler did not get as far as an exit status of its own: a signal or a limit."""
    if outcome.over_memory:
        held = f"{outcome.peak_memory >> 20} MB"
        return _fail(Kind.RESOURCE, f"Killed at its memory limit, holding {held}", "memory limit", outcome, reading)
    number = outcome.signal or _CRASHES.get(outcome.exit_code or 0)
    if outcome.exit_code == 128 + _TOO_LARGE:
        number = _TOO_LARGE
    if number is None:
        return None
    if number == _TOO_LARGE:
        return _fail(Kind.RESOURCE, "Wrote a file larger than the file limit", "file limit", outcome, reading)
    name = signal_name(number)
    return _fail(Kind.CRASH, f"Killed by {name}", name, outcome, reading)


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; `signal 77` for one without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _fail(kind: Kind, end: str, mark: str, outcome: Outcome, reading: Reading) -> Verdict:
    return Verdict(
        status=Status.FAIL,
        kind=kind,
        fingerprint=f"{mark}: {reading.fingerprint}" if reading.fingerprint else mark,
        message=f"{end}. Its last words: {reading.message}" if reading.message else f"{end}, without a word.",
        hints=reading.hints,
        seconds=outcome.seconds,
    )
