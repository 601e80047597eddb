"""Tensors that pass between parts of a split, or between a part and the user of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model
from onnxbisect.split.schedule import PieceUnits
from onnxbisect.unitset import members


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The part that makes a tensor, and the parts that read it.

    `maker` is None for an input of the model; `output` tells whether the tensor is an output of the model.
    """

    maker: int | None
    takers: tuple[int, ...]
    output: bool


def crossings(model: Model, wiring: Wiring, parts: Sequence[PieceUnits]) -> Mapping[str, Crossing]:
    """The tensors that cross; not those of known value, which a cut stores in the piece."""
    place = {unit: number for number, part in enumerate(parts) for unit in members(part.units)}
    outputs = {value.name for value in model.proto.graph.output}
    takers: dict[str, set[int]] = {name: set() for name in wiring.maker if name in outputs}
    for unit, number in place.items():
        for name in wiring.boundary[unit]:
            if name not in model.known and place.get(wiring.maker.get(name, -1)) != number:
                takers.setdefault(name, set()).add(number)
    return {
        name: Crossing(
            maker=place[wiring.maker[name]] if name in wiring.maker else None,
            takers=tuple(sorted(numbers)),
            output=name in outputs,
        )
        for name, numbers in takers.items()
    }
