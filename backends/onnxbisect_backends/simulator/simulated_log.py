"""The simulated compiler's log: messages of the profiled tool for people, and JSON for `judge`."""

import json
from dataclasses import dataclass

from onnxbisect.verdict import Hints, Kind
from onnxbisect_backends.simulator.profiles import Profile, Report
from onnxbisect_backends.simulator.refusals import Refusal

#: Starts the line that `read_back` looks for; everything before it is for people.
_MARK = "[whitelist] "
#: Most characters of model text in one line of the log.
_MOST = 300


@dataclass(frozen=True, kw_only=True)
class LogContents:
    """The contents of a log. `blanked` is the message without node names, for fingerprints."""

    kind: Kind
    message: str
    blanked: str
    hints: Hints


def words(profile: Profile, found: tuple[Refusal, ...]) -> list[str]:
    """The last lines of the log, in the profile's report mode; none for a silent crash.

    `first` names the first offender with its node. `all` lists every unlisted op at once, or, without any, the first
    other refusal, like a converter that meets it after its check of op types.
    """
    if found[0].kind is Kind.INVALID:
        return [_shown(found[0].reason), _record(found[:1], found[0].reason)]
    if profile.report is Report.NONE:
        return []
    if profile.report is Report.FIRST:
        first = found[0]
        place = [f"    op: {_shown(node)}" for node in first.nodes]
        message = first.reason and _sentence(first)
        blanked = message or _refusal(profile, first.ops, "<node>")
        message = message or _refusal(profile, first.ops, first.nodes[0])
        return [message, *place, _record((first,), message, blanked)]
    off_list = tuple(refusal for refusal in found if refusal.kind is Kind.UNSUPPORTED and not refusal.reason)
    if not off_list:
        message = _sentence(found[0])
        return [message, _record(found[:1], message)]
    ops = tuple(sorted({op for refusal in off_list for op in refusal.ops}))
    if "{node}" in profile.refusal:
        lines = [_refusal(profile, refusal.ops, refusal.nodes[0]) for refusal in off_list]
        return [*lines, _record(off_list, lines[0], _refusal(profile, off_list[0].ops, "<node>"))]
    lines = [_refusal(profile, (op,)) for op in ops] if "{op}" in profile.refusal else [_refusal(profile, ops)]
    return [*lines, _record(off_list, lines[0], nodes=False)]


def unknown_words(found: tuple[Refusal, ...]) -> list[str]:
    """The last lines of the log if the profile refuses nothing and does not know all ops."""
    unlisted = dict.fromkeys(op for refusal in found if not refusal.reason for op in refusal.ops)
    beyond = dict.fromkeys(f"{refusal.ops[0]} ({refusal.reason})" for refusal in found if refusal.reason)
    message = _shown(f"not known to this profile: {', '.join([*sorted(unlisted), *beyond])}")
    return [message, _record(found, message)]


def read_back(log: str) -> LogContents | None:
    """The contents that `words` wrote; None if missing, as in a truncated log."""
    line = next((line for line in reversed(log.splitlines()) if line.startswith(_MARK)), None)
    if line is None:
        return None
    said = json.loads(line.removeprefix(_MARK))
    return LogContents(
        kind=Kind(said["kind"]),
        message=said["message"],
        blanked=said["blanked"],
        hints=Hints(ops=tuple(said["ops"]), nodes=tuple(said["nodes"]), tensors=tuple(said["tensors"])),
    )


def _record(found: tuple[Refusal, ...], message: str, blanked: str = "", *, nodes: bool = True) -> str:
    said = {
        "kind": found[0].kind.value,
        "message": message,
        "blanked": blanked or message,
        "ops": list(dict.fromkeys(op for refusal in found for op in refusal.ops)),
        "nodes": list(dict.fromkeys(node for refusal in found for node in refusal.nodes)) if nodes else [],
        "tensors": [tensor for refusal in found for tensor in refusal.tensors],
    }
    return _MARK + json.dumps(said)  # JSON escapes line ends, so that a hostile name stays one name


def _refusal(profile: Profile, ops: tuple[str, ...], node: str = "") -> str:
    named = {
        "{op}": ops[0],
        "{ops}": ",".join(ops),
        "{quoted_ops}": ", ".join(f"'{op}'" for op in ops),
        "{node}": node,
    }
    text = profile.refusal
    for word, value in named.items():
        text = text.replace(word, _shown(value))
    return text


def _sentence(refusal: Refusal) -> str:
    unsupported = refusal.ops and refusal.kind is Kind.UNSUPPORTED
    return _shown(f"{refusal.ops[0]} not supported: {refusal.reason}" if unsupported else refusal.reason)


def _shown(text: str) -> str:
    """Text from a model, made safe for one line of the log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_MOST])
