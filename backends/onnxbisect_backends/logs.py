"""Reads a compiler's log with patterns: what it names, in which way it failed, and in which words."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from onnxbisect.fingerprint import fingerprint, headline, plain
from onnxbisect.verdict import Hints, Kind

#: Groups that a pattern may have.
GROUPS = frozenset({"op", "node", "tensor"})

#: Names taken from one log; a compiler that lists more is not helped by more.
_MOST = 1000

#: Characters at either end of a line in which patterns are looked for: some take time with the square of the length,
#: and what a compiler prints between is mostly weights.
_END = 3000
_OVERLONG = re.compile(rf"[^\n]{{{2 * _END},}}")

#: Characters of a line that a person reads to the end.
_LONG = 300

#: The time that a log's line begins with: without it the same failure has the same message in every run.
_STAMP = re.compile(r"^\[?(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+(?:[-|:]\s+)?")

_VERSION_SUFFIX = re.compile(r"-\d+$")
_DEFAULT_DOMAIN = re.compile(r"^(?:ai\.onnx|onnx)(?:::?\d+)?(?:::?|\.)(?=\w+$)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A text of the compiler's, with the groups `op`, `node` and `tensor` where it names some.

    `^` and `$` match at every line; an `op` group may hold several, separated by commas or blanks. `kind` is how
    the compiler failed where it says this; `fails` makes the text a failure whatever the exit status.
    """

    regex: re.Pattern[str]
    kind: Kind = Kind.UNSUPPORTED
    fails: bool = False


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a log says. `kind` is None where no pattern matched; `message` and `fingerprint` may be empty.

    `refused`: a pattern that means failure by itself has matched.
    """

    hints: Hints = field(default_factory=Hints)
    kind: Kind | None = None
    message: str = ""
    fingerprint: str = ""
    refused: bool = False


def compile_pattern(regex: str) -> re.Pattern[str]:
    """Compile a pattern's expression; raises ValueError in one sentence where it is none, or has other groups."""
    try:
        compiled = re.compile(regex, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"'{regex}' is not a regular expression: {error}") from None
    if unknown := sorted(set(compiled.groupindex) - GROUPS):
        raise ValueError(f"'{regex}' has the group '{unknown[0]}'; groups are op, node and tensor")
    return compiled


def read_log(log: str, patterns: Sequence[Pattern] = ()) -> Reading:
    """Apply the patterns; the first of them that matches decides kind and message, all of them give hints.

    Without a match the message is the last complaint of the log, else its last line. The fingerprint is that of the
    matched words without what they name, so that two ops refused in the same words have the same one.
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
    if first is None:
        said = _STAMP.sub("", headline(log))
        return Reading(message=said, fingerprint=fingerprint(said))
    pattern, match = first
    return Reading(
        hints=hints,
        kind=pattern.kind,
        message=_lines(match),
        fingerprint=fingerprint(_blanked(match)),
        refused=refused,
    )


def op_names(text: str) -> Iterable[str]:
    """The ops in a captured text, as hints and advertised lists spell them.

    Bare in the default domain, else `domain::Op`; compilers write `ONNX::Det`, `ai.onnx:Det`, `onnx.Det`, `Det-17`
    or `my.domain.Op`. Some write `einsum` for ONNX's `Einsum`, which comes out in ONNX's spelling.
    """
    for word in re.split(r"[,;|\s]+", text):
        name = _DEFAULT_DOMAIN.sub("", _VERSION_SUFFIX.sub("", word.strip("'\"`[]")))
        domain, _, op = name.replace("::", ":").replace(":", ".").rpartition(".")
        if op:
            yield f"{domain}::{op}" if domain else _spellings().get(op.lower(), op)


@cache
def _spellings() -> dict[str, str]:
    """ONNX's own ops by their names in lower case, which no two of them share."""
    import onnx.defs  # memory that a process which only knows backends by name, such as the API, does without

    schemas = onnx.defs.get_all_schemas_with_history()
    return {schema.name.lower(): schema.name for schema in schemas if schema.domain in ("", "ai.onnx")}


def _name(text: str | None) -> list[str]:
    name = (text or "").strip()
    return [name] if name else []


def _lines(match: re.Match[str]) -> str:
    """The lines that a match stands in, as one; those that are too long begin where the match does."""
    text = match.string
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    end = end if end >= 0 else len(text)
    line = _STAMP.sub("", " ".join(text[start:end].split()))
    return headline(line if len(line) <= _LONG else "… " + " ".join(text[match.start() : end].split()))


def _blanked(match: re.Match[str]) -> str:
    """The matched text with what its groups captured taken out."""
    spans = sorted((match.span(group), group) for group in match.re.groupindex if match.group(group))
    text, at = "", match.start()
    for (start, end), group in spans:
        if start >= at:
            text += match.string[at:start] + f"<{group}>"
            at = end
    return text + match.string[at : match.end()]
