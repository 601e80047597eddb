"""Finds ops and nodes of a probe in the messages of an unknown compiler."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxbisect.model.scopes import qualified
from onnxbisect.verdict import Hints

#: A word; other characters may surround a name in a sentence.
_WORD = re.compile(r"[^\s'\"`,;()\[\]{}<>=|]+")
#: Ops that are also words with which sentences begin.
_SENTENCE_BEGINS = frozenset({"And", "If", "Not", "Or", "Range", "Shape", "Size", "Split", "Where"})
_LETTERS = re.compile(r"[a-z]+|[A-Z][a-z]+")


@dataclass(frozen=True, kw_only=True)
class Mentions:
    """The ops and nodes that a sentence names, as `hints`.

    `blanked` is the sentence with `<op>` and `<node>` in place of the names, equal for two ops refused alike.
    """

    hints: Hints
    blanked: str


NOTHING = Mentions(hints=Hints(), blanked="")


def mentions(sentence: str, probe: Path) -> Mentions:
    """Ops and nodes of the model in the file `probe` that occur in the sentence; none if the file cannot be read.

    Node names that look like English words are ignored.
    """
    try:
        nodes = onnx.load(probe, load_external_data=False).graph.node
    except Exception:  # an invalid file may be why it was refused
        return NOTHING
    names = {node.name for node in nodes if not _LETTERS.fullmatch(node.name)}
    return _mentions(sentence, {qualified(node) for node in nodes}, names)


def _mentions(sentence: str, ops: Collection[str], names: Collection[str]) -> Mentions:
    found: dict[str, dict[str, None]] = {"op": {}, "node": {}}
    blanked, at = "", 0
    for word in _WORD.finditer(sentence):
        name = word[0] if word[0] in names else word[0].rstrip(".:!")
        op = name.rpartition("::")[2].rpartition("ai.onnx.")[2] if name not in ops else name
        if name in names:
            what, value = "node", name
        elif op in ops and not (at == 0 and word.start() == 0 and op in _SENTENCE_BEGINS):
            what, value = "op", op
        else:
            continue
        found[what][value] = None
        start = word.start()
        blanked += f"{sentence[at:start]}<{what}>"
        at = start + len(name)
    return Mentions(hints=Hints(ops=tuple(found["op"]), nodes=tuple(found["node"])), blanked=blanked + sentence[at:])
