"""Schedule units of two kinds, NPU and host, as few pieces that run one after another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model
from onnxbisect.unitset import UnitSet, groups_of, members, of
from onnxbisect.universe import Universe


class PieceKind(StrEnum):
    """Where a piece runs."""

    HOST = "host"
    NPU = "npu"
    #: On the host, by code of the user: one node that onnxruntime does not know.
    CUSTOM = "custom"


@dataclass(frozen=True, kw_only=True)
class PieceUnits:
    """Units that run together in one piece."""

    kind: PieceKind
    units: UnitSet


def schedule(universe: Universe, npu: UnitSet, host: UnitSet) -> tuple[PieceUnits, ...]:
    """The units of `npu` and of `host` as parts of alternating kind, in an order in which they can run.

    The order has the fewest NPU parts possible and, among those orders, the fewest parts. A part depends only on
    earlier parts, so each is convex. Units in neither set are left out. Takes time linear in units and edges.
    """
    found = (_scheduled(universe, npu, host, first) for first in (0, 1))
    return min(found, key=lambda parts: (sum(part.kind is PieceKind.NPU for part in parts), len(parts)))


def with_custom_apart(universe: Universe, parts: Sequence[PieceUnits], custom: UnitSet) -> Iterator[PieceUnits]:
    """The parts, with each of the `custom` units on the host as a part of its own."""
    for part in parts:
        if part.kind is PieceKind.HOST and part.units & custom:
            for inner in schedule(universe, part.units & custom, part.units & ~custom):
                if inner.kind is PieceKind.HOST:
                    yield inner
                else:
                    yield from (PieceUnits(kind=PieceKind.CUSTOM, units=of([unit])) for unit in members(inner.units))
        else:
            yield part


def _scheduled(universe: Universe, npu: UnitSet, host: UnitSet, first: int) -> tuple[PieceUnits, ...]:
    """Put each unit at the earliest step that its producers allow: even steps run on the host, odd ones on the NPU.

    The last step then equals the longest alternation of kinds on any path, so no order that begins with `first` has
    fewer steps.
    """
    steps: list[int | None] = [None] * len(universe)
    for unit in members(npu | host):
        before = [steps[producer] for producer in members(universe.predecessors[unit])]
        step = max((first, *(it for it in before if it is not None)))
        steps[unit] = step + (step % 2 != (npu >> unit & 1))
    together = [
        (unit, consumer)
        for unit, step in enumerate(steps)
        if step is not None
        for consumer in members(universe.successors[unit])
        if steps[consumer] == step
    ]
    connected: dict[int, list[int]] = {}
    for unit, first_unit in enumerate(groups_of(len(steps), together)):
        if steps[unit] is not None:
            connected.setdefault(first_unit, []).append(unit)
    for part in sorted(connected.values(), key=lambda part: (steps[part[0]], part[0]), reverse=True):
        # Move a part to the step of its first consumer if that runs in the same place, so that fewer tensors cross.
        own = set(part)
        consumers = {consumer for unit in part for consumer in members(universe.successors[unit])} - own
        latest = min((step for step in map(steps.__getitem__, consumers) if step is not None), default=None)
        here = steps[part[0]]
        if latest is not None and here is not None and latest % 2 == here % 2:
            for unit in part:
                steps[unit] = latest
    taken: dict[int, list[int]] = {}
    for unit, at in enumerate(steps):
        if at is not None:
            taken.setdefault(at, []).append(unit)
    return tuple(
        PieceUnits(kind=PieceKind.NPU if at % 2 else PieceKind.HOST, units=of(taken[at])) for at in sorted(taken)
    )


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
