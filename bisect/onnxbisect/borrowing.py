"""Answers that were given to an equal piece in another place."""

from dataclasses import replace

from onnxbisect.answer import Answer
from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe


def borrowed(answer: Answer, universe: Universe, units: UnitSet) -> Answer:
    """A kept answer as one about these units: it names only those nodes and tensors that they have."""
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
