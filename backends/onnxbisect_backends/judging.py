"""Rules for outcomes that are the same for every compiler in a process."""

import re
import signal as signals

from onnxbisect.language import english
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.contract import Outcome
from onnxbisect_backends.logs import Reading

#: Exit statuses of shells and wrappers whose program died of SIGABRT, SIGFPE or SIGSEGV. No other status above 128
#: counts as a signal, because compilers use such statuses for their own errors.
_CRASHES = {134: signals.SIGABRT, 136: signals.SIGFPE, 139: signals.SIGSEGV}

_TOO_LARGE = signals.SIGXFSZ

#: Messages of programs out of memory: Python's, numpy's, C++'s, LLVM's.
_NO_MEMORY = re.compile(
    r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|^terminate called after throwing an instance of 'std::bad_alloc'"
    r"|^ *what\(\): +std::bad_alloc|^LLVM ERROR: out of memory",
    re.MULTILINE,
)

#: A line that says that a licence was not granted: what it is about, and that it failed, in either order.
_NO_LICENCE = re.compile(
    r"^(?=.{0,300}\blicen[sc]es?\b)"
    r"(?=.{0,300}\b(?:check(?:ed)?[ -]?out|server|manager|daemon|feature|file|key|token)\b)"
    r"(?=.{0,300}\b(?:fail(?:ed|ure)?|can(?:not|'t)|could not|unable|denied|expired|invalid|not found|not available"
    r"|unavailable|unreachable|not responding|refused|timed out|no (?:valid|such))\b).{1,300}",
    re.MULTILINE | re.IGNORECASE,
)

#: A wrapper's exit status for a killed program.
_KILLED = 137
#: Signals sent by people and by systems that shut down, not by the program itself.
_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT)


def unresolved(message: str, outcome: Outcome, kind: Kind = Kind.ERROR) -> Verdict:
    """The verdict where the compile says nothing about the model."""
    return Verdict(status=Status.UNRESOLVED, kind=kind, message=message, seconds=outcome.seconds)


def killed_from_outside(outcome: Outcome) -> bool:
    """Whether another process, or the kernel for lack of memory, ended the compile."""
    shot = outcome.signal in _OUTSIDE or outcome.exit_code == _KILLED
    return outcome.interrupted or (shot and not outcome.over_memory)


def unfinished(outcome: Outcome) -> Verdict | None:
    """An unresolved verdict for a compile that did not start, timed out, was killed or got no memory or licence.

    None for any other. Such a compile says nothing about the model. SIGKILL and SIGTERM come from this program, from
    the kernel for lack of memory, or from administrators. Unless this program sent it, the same compile may succeed
    later, or with fewer parallel compiles.
    """
    if outcome.broken:
        return unresolved(outcome.broken, outcome, Kind.RESOURCE if outcome.short else Kind.ERROR)
    if outcome.timed_out:
        message = f"Still compiling after {outcome.seconds:.0f} seconds, then killed; raise the time limit to know."
        return unresolved(message, outcome, Kind.TIMEOUT)
    if killed_from_outside(outcome):
        message = (
            f"Killed by another process, holding {outcome.peak_memory >> 20} MB: most likely the kernel, when memory "
            f"ran out; try fewer compiles at a time, or more memory."
        )
        return unresolved(message, outcome, Kind.RESOURCE)
    if not outcome.over_memory and outcome.exit_code != 0 and _NO_MEMORY.search(outcome.log):
        message = (
            f"Ran out of memory, holding {outcome.peak_memory >> 20} MB; try fewer compiles at a time, or more memory."
        )
        return unresolved(message, outcome, Kind.RESOURCE)
    if outcome.exit_code != 0 and (said := _NO_LICENCE.search(outcome.log)):
        return unresolved(f"No licence was available, so this says nothing about the model: {said[0].strip()}", outcome)
    return None


def crashed(outcome: Outcome, reading: Reading) -> Verdict | None:
    """The verdict if the compiler ended by a signal or a limit instead of an exit status."""
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


def last_words(outcome: Outcome) -> str:
    """How a run ended that did not succeed, without a full stop."""
    if outcome.timed_out:
        return english("it did not end within {seconds} s", seconds=f"{outcome.seconds:.0f}")
    if outcome.signal is not None:
        return english("its process died ({how})", how=signal_name(outcome.signal))
    lines = [line.strip() for line in outcome.log.splitlines() if line.strip()]
    return outcome.broken.rstrip(".") or (lines[-1].rstrip(".!") if lines else english("its process died"))


def _fail(kind: Kind, end: str, mark: str, outcome: Outcome, reading: Reading) -> Verdict:
    return Verdict(
        status=Status.FAIL,
        kind=kind,
        fingerprint=f"{mark}: {reading.fingerprint}" if reading.fingerprint else mark,
        message=f"{end}. Its last words: {reading.message}" if reading.message else f"{end}, without a word.",
        hints=reading.hints,
        seconds=outcome.seconds,
    )
