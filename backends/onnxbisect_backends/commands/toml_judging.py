"""Judges an outcome by the rules of a compiler's TOML file."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from onnxbisect.fingerprint import fingerprint, plain
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_backends.commands.definition import Definition, Success, Unresolved
from onnxbisect_backends.contract import Outcome
from onnxbisect_backends.judging import crashed, unfinished
from onnxbisect_backends.logs import Pattern, Reading, compile_pattern, read_log


def judged(definition: Definition, patterns: Sequence[Pattern], outcome: Outcome) -> Verdict:
    """The verdict; `patterns` are those of the definition that apply."""
    if verdict := unfinished(outcome):
        return verdict
    rules = definition.success
    reading = read_log(outcome.log, patterns)
    if why := _not_answered(definition.unresolved, outcome):
        return _unresolved(f"{why}: {reading.message}" if reading.message else f"{why}.", outcome)
    good_exit = outcome.exit_code in rules.exit_codes
    if not good_exit and (verdict := crashed(outcome, reading)):
        return verdict
    why = _missed(rules, outcome, reading)
    unsaid = _unsaid(rules, outcome)
    fatal = rules.log_must_not_match or any(pattern.fails for pattern in patterns)
    if not why and outcome.log_truncated and (unsaid or fatal):
        return _unresolved("What decides may stand in the part of the log that was cut; raise limits.log_kb.", outcome)
    why = why or unsaid
    if not why:
        return Verdict(status=Status.PASS, hints=reading.hints, seconds=outcome.seconds)
    # the last line of a successful compile is no complaint, unless a pattern matched
    said = reading.message if reading.kind or not good_exit else ""
    return Verdict(
        status=Status.FAIL,
        kind=reading.kind or Kind.ERROR,
        fingerprint=reading.fingerprint if said else fingerprint(why),
        message=said or why,
        hints=reading.hints,
        seconds=outcome.seconds,
    )


def _unresolved(message: str, outcome: Outcome) -> Verdict:
    return Verdict(status=Status.UNRESOLVED, kind=Kind.ERROR, message=message, seconds=outcome.seconds)


def _not_answered(rules: Unresolved, outcome: Outcome) -> str:
    if outcome.exit_code in rules.exit_codes:
        return f"The compiler could not answer (exit status {outcome.exit_code})"
    if any(compile_pattern(regex).search(plain(outcome.log)) for regex in rules.log_matches):
        return "The compiler could not answer"
    return ""


def _missed(rules: Success, outcome: Outcome, reading: Reading) -> str:
    """Why this is no success, as a sentence; else empty."""
    if outcome.exit_code not in rules.exit_codes:
        return f"Ended with exit status {outcome.exit_code}."
    if reading.refused:
        return "The log says that the compile failed."
    log = plain(outcome.log)
    for regex in rules.log_must_not_match:
        if match := compile_pattern(regex).search(log):
            return f"The log says: {read_log(match[0]).message}"
    for glob in rules.files:
        if not any(fnmatchcase(str(path), glob) for path in outcome.artifacts):
            return f"Ended with exit status {outcome.exit_code}, but wrote no file '{glob}'."
    return ""


def _unsaid(rules: Success, outcome: Outcome) -> str:
    """Which text of a success is missing in the log, as a sentence; else empty."""
    log = plain(outcome.log)
    for regex in rules.log_must_match:
        if not compile_pattern(regex).search(log):
            return f"Ended with exit status {outcome.exit_code}, but the log has nothing like '{regex}'."
    return ""
