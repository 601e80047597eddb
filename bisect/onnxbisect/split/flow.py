"""The dataflow of a model when tensors of known value count as constants."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from onnxbisect.cut.wiring import Wiring
from onnxbisect.errors import CutError
from onnxbisect.model.model import Model
from onnxbisect.model.wording import some
from onnxbisect.unitset import UnitSet, members, of, union
from onnxbisect.universe import Universe


def flow(model: Model, wiring: Wiring) -> Universe:
    """The model's universe without the edges of tensors of known value, which a cut stores in the piece."""
    after: list[set[int]] = [set() for _ in model.units]
    for name, unit in wiring.maker.items():
        if name not in model.known:
            after[unit].update(wiring.takers.get(name, ()))
    return replace(model.universe, successors=tuple(map(of, after)))


def needed(model: Model, wiring: Wiring, universe: Universe) -> UnitSet:
    """The units that an output of the model depends on in `universe`, the result of `flow`.

    Raises CutError for an output that is a stored constant: no piece can compute it.
    """
    outputs = [value.name for value in model.proto.graph.output]
    inputs = {value.name for value in model.proto.graph.input}
    stored = [name for name in outputs if name not in wiring.maker and name not in inputs]
    if stored:
        raise CutError(f"Outputs of the model are constants, which no piece computes: {some(stored)}. Remove them.")
    leading = ancestors(universe)
    return union(leading[wiring.maker[name]] for name in outputs if name in wiring.maker)


def ancestors(universe: Universe) -> list[UnitSet]:
    """For each unit the set of itself and all units that it depends on."""
    return _reached(range(len(universe)), universe.predecessors)


def descendants(universe: Universe) -> list[UnitSet]:
    """For each unit the set of itself and all units that depend on it."""
    return _reached(reversed(range(len(universe))), universe.successors)


def _reached(order: Iterable[int], neighbours: Sequence[UnitSet]) -> list[UnitSet]:
    found = [0] * len(neighbours)
    for unit in order:
        found[unit] = 1 << unit | union(found[other] for other in members(neighbours[unit]))
    return found
