"""From a compiler's log and exit to a verdict: names, kind of failure and message; writes how to get it again."""

import re
import signal as signals
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from onnxbisect.fingerprint import fingerprint, headline, plain
from onnxbisect.language import english
from onnxbisect.verdict import Hints, Kind, Status, Table, Verdict
from onnxbisect_backends.contract import Outcome

#: Groups that a pattern may have.
GROUPS = frozenset({"op", "node", "tensor"})

#: Most names taken from one log.
_MOST = 1000

#: Characters at either end of a line that are searched: some patterns take quadratic time, and long lines are mostly
#: weights.
_END = 3000
_OVERLONG = re.compile(rf"[^\n]{{{2 * _END},}}")

#: Most characters of a line that is kept in full.
_LONG = 300

#: The timestamp of a log line, removed so that the same failure has the same message in every run.
_STAMP = re.compile(r"^\[?(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+(?:[-|:]\s+)?")

#: The last line of a Python traceback.
_RAISED = re.compile(r"^\w+(?:Error|Exception): ", re.MULTILINE)

_VERSION_SUFFIX = re.compile(r"-\d+$")
_DEFAULT_DOMAIN = re.compile(r"^(?:ai\.onnx|onnx)(?:::?\d+)?(?:::?|\.)(?=\w+$)", re.IGNORECASE)
_SCRIPT_HEAD = "#!/bin/sh\n# What the compiler was called with. Run it in this folder.\nset -e\n"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern for a compiler's log, with optional groups `op`, `node` and `tensor`.

    `^` and `$` match at every line; an `op` group may contain several ops, separated by commas or blanks. `kind` is the
    kind of failure that a match shows; with `fails`, a match is a failure whatever the exit status.
    """

    regex: re.Pattern[str]
    kind: Kind = Kind.UNSUPPORTED
    fails: bool = False


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of reading a log. `kind` is None if no pattern matched; `message` and `fingerprint` may be empty.

    `refused`: a pattern with `fails` has matched.
    """

    hints: Hints = field(default_factory=Hints)
    kind: Kind | None = None
    message: str = ""
    fingerprint: str = ""
    refused: bool = False


def compile_pattern(regex: str) -> re.Pattern[str]:
    """Compile a pattern; raises ValueError with one sentence if it is invalid or has other groups."""
    try:
        compiled = re.compile(regex, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"'{regex}' is not a regular expression: {error}") from None
    if unknown := sorted(set(compiled.groupindex) - GROUPS):
        raise ValueError(f"'{regex}' has the group '{unknown[0]}'; groups are op, node and tensor")
    return compiled


def pattern(regex: str, kind: Kind = Kind.UNSUPPORTED, *, fails: bool = False) -> Pattern:
    """A pattern from the text of its expression."""
    return Pattern(regex=compile_pattern(regex), kind=kind, fails=fails)


def read_log(log: str, patterns: Sequence[Pattern] = ()) -> Reading:
    """Apply the patterns; the first match decides kind and message, all matches give hints.

    Without a match, the message is the last complaint of the log, or else its last line. The fingerprint is the matched
    text without the captured names, so that two ops refused alike have the same one. A match that says nothing, such as
    the banner above a stack, leaves message and fingerprint to the rest of the log.
    """
    text = _OVERLONG.sub(lambda line: f"{line[0][:_END]} … {line[0][-_END:]}", plain(log))
    ops: dict[str, None] = {}
    nodes: dict[str, None] = {}
    tensors: dict[str, None] = {}
    first: tuple[Pattern, re.Match[str]] | None = None
    refused = False
    for pattern in patterns:
        for count, match in enumerate(pattern.regex.finditer(text)):
            if count == _MOST:
                break
            first = first or (pattern, match)
            refused = refused or pattern.fails
            named = match.groupdict()
            ops.update(dict.fromkeys(op_names(named.get("op") or "")))
            nodes.update(dict.fromkeys(_name(named.get("node"))))
            tensors.update(dict.fromkeys(_name(named.get("tensor"))))
    hints = Hints(ops=tuple(ops), nodes=tuple(nodes), tensors=tuple(tensors))
    message = "" if first is None else _lines(first[1])
    if first is None or not message:
        said = _STAMP.sub("", headline(log))
        kind = None if first is None else first[0].kind
        return Reading(hints=hints, kind=kind, message=said, fingerprint=fingerprint(said), refused=refused)
    pattern, match = first
    # without the groups, which name ops and tensors
    spans = sorted((match.span(group), group) for group in match.re.groupindex if match.group(group))
    text, at = "", match.start()
    for (start, end), group in spans:
        if start >= at:
            text += match.string[at:start] + f"<{group}>"
            at = end
    return Reading(
        hints=hints,
        kind=pattern.kind,
        message=message,
        fingerprint=fingerprint(text + match.string[at : match.end()]),
        refused=refused,
    )


def op_names(text: str) -> Iterable[str]:
    """The ops in a captured text, spelled as in hints and advertised lists.

    Bare in the default domain, else `domain::Op`; compilers write `ONNX::Det`, `ai.onnx:Det`, `onnx.Det`, `Det-17` or
    `my.domain.Op`. Some write `einsum` for ONNX's `Einsum`, which is returned in ONNX's spelling.
    """
    for word in re.split(r"[,;|\s]+", text):
        name = _DEFAULT_DOMAIN.sub("", _VERSION_SUFFIX.sub("", word.strip("'\"`[]")))
        domain, _, op = name.replace("::", ":").replace(":", ".").rpartition(".")
        if op:
            yield f"{domain}::{op}" if domain else _spellings().get(op.lower(), op)


@cache
def _spellings() -> dict[str, str]:
    """ONNX's own ops by their lower-case names, which are unique."""
    import onnx.defs  # imported late to save memory in processes such as the API

    schemas = onnx.defs.get_all_schemas_with_history()
    return {schema.name.lower(): schema.name for schema in schemas if schema.domain in ("", "ai.onnx")}


def _name(text: str | None) -> list[str]:
    name = (text or "").strip()
    return [name] if name else []


def _lines(match: re.Match[str]) -> str:
    """The lines of a match as one, from an exception on that ends it; long lines are cut to start at the match."""
    text = match.string
    raised = _RAISED.search(text, match.start(), match.end())
    start = text.rfind("\n", 0, raised.start() if raised else match.start()) + 1
    end = text.find("\n", match.end())
    end = end if end >= 0 else len(text)
    line = _STAMP.sub("", " ".join(text[start:end].split()))
    return headline(line if len(line) <= _LONG else "… " + " ".join(text[match.start() : end].split()))


def write_script(folder: Path, commands: Sequence[str]) -> None:
    """Write `reproduce.sh`, with one command per line."""
    script = folder / "reproduce.sh"
    script.write_text(_SCRIPT_HEAD + "".join(f"{command}\n" for command in commands), encoding="utf-8")
    script.chmod(0o755)


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


def refused(outcome: Outcome, reading: Reading, tables: Sequence[Table] = ()) -> Verdict:
    """The verdict on a model that the compiler refused, in the words of `reading`."""
    return Verdict(
        status=Status.FAIL,
        kind=reading.kind or Kind.ERROR,
        fingerprint=reading.fingerprint,
        message=reading.message,
        hints=reading.hints,
        seconds=outcome.seconds,
        tables=tuple(tables),
    )


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
        return _ended(Kind.RESOURCE, f"Killed at its memory limit, holding {held}", "memory limit", outcome, reading)
    number = outcome.signal or _CRASHES.get(outcome.exit_code or 0)
    if outcome.exit_code == 128 + _TOO_LARGE:
        number = _TOO_LARGE
    if number is None:
        return None
    if number == _TOO_LARGE:
        return _ended(Kind.RESOURCE, "Wrote a file larger than the file limit", "file limit", outcome, reading)
    name = signal_name(number)
    return _ended(Kind.CRASH, f"Killed by {name}", name, outcome, reading)


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


def _ended(kind: Kind, end: str, mark: str, outcome: Outcome, reading: Reading) -> Verdict:
    fingerprint = f"{mark}: {reading.fingerprint}" if reading.fingerprint else mark
    message = f"{end}. Its last words: {reading.message}" if reading.message else f"{end}, without a word."
    return refused(outcome, Reading(kind=kind, fingerprint=fingerprint, message=message, hints=reading.hints))
