"""Probe queries and their results: verdicts with the compiler's log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

#: Bytes of compiler log kept with a verdict: enough to show a culprit's failure again without compiling it.
LOG_BYTES = 64_000
#: For each compiled probe its verdicts in order; more than one only if it was compiled again in a new process.
Verdicts = Mapping[UnitSet, Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request to compile these units together; `attempt` counts earlier results for the same units.

    `why` is a phrase for the progress line, such as "the whole model" or "Erf alone". `speculative` requests are only
    for workers that would be idle: a result that is still outstanding may make them pointless.
    """

    units: UnitSet
    attempt: int
    why: str
    speculative: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A verdict and the compiler's log, shortened to `LOG_BYTES`.

    For a failure `file_sha256` is the hash of the compiled file: a piece with the same bytes gets the same verdict.
    """

    verdict: Verdict
    file_sha256: str = ""
    log: str = field(default="", repr=False)


def shorten_log(log: str) -> str:
    """Shorten a log to `LOG_BYTES` in the middle: the command and versions are at its start, errors at its end."""
    raw = log.encode("utf-8", "replace")
    if len(raw) <= LOG_BYTES:
        return raw.decode("utf-8")
    head, tail = raw[: LOG_BYTES // 4], raw[-(LOG_BYTES * 3 // 4) :]
    cut = f"\n[onnx-bisect: {len(raw) - len(head) - len(tail)} bytes left out]\n"
    return head.decode("utf-8", "ignore") + cut + tail.decode("utf-8", "ignore")


def answer_about(answer: Answer, universe: Universe, units: UnitSet) -> Answer:
    """Transfer an answer from an equal piece to these units: its hints name only nodes and tensors of these units."""
    hints = answer.verdict.hints
    if not (hints.nodes or hints.tensors):
        return answer
    names: set[str] = set()
    tensors: set[str] = set()
    for unit in members(units):
        names.update(universe.names[unit])
        tensors.update(universe.tensors[unit])
    own = replace(
        hints,
        nodes=tuple(name for name in hints.nodes if name in names),
        tensors=tuple(name for name in hints.tensors if name in tensors),
        right=tuple(name for name in hints.right if name in tensors),
    )
    return replace(answer, verdict=replace(answer.verdict, hints=own))
