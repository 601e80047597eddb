"""Questions to a compiler, and its answers: verdicts together with what proves them."""

from dataclasses import dataclass, field, replace

from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

#: Bytes of compiler log kept with a verdict: enough to show a culprit's failure again without compiling it.
LOG_BYTES = 64_000


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question worth asking: compile these units together. `attempt` counts earlier answers to the same one.

    `why` is a phrase for the progress line, such as "the whole model" or "Erf alone". `speculative` questions are
    worth asking only by a worker that would idle: an answer still outstanding may make them pointless.
    """

    units: UnitSet
    attempt: int
    why: str
    speculative: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A verdict and the compiler's log, cut to `LOG_BYTES`.

    For a failure `file_sha256` is that of the bytes that were compiled: a piece that is cut to the same bytes again
    has the same answer.
    """

    verdict: Verdict
    file_sha256: str = ""
    log: str = field(default="", repr=False)


def shorten_log(log: str) -> str:
    """A log cut to `LOG_BYTES`: errors stand at the end, the command and versions at the beginning."""
    raw = log.encode("utf-8", "replace")
    if len(raw) <= LOG_BYTES:
        return raw.decode("utf-8")
    head, tail = raw[: LOG_BYTES // 4], raw[-(LOG_BYTES * 3 // 4) :]
    cut = f"\n[onnx-bisect: {len(raw) - len(head) - len(tail)} bytes left out]\n"
    return head.decode("utf-8", "ignore") + cut + tail.decode("utf-8", "ignore")


def answer_about(answer: Answer, universe: Universe, units: UnitSet) -> Answer:
    """An answer given to an equal piece elsewhere, as one about these units: it names only their nodes and tensors."""
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
