"""Encode universes as JSON objects, so that a planner can continue in another process or on another machine."""

from typing import Any

from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe


def to_json(universe: Universe) -> dict[str, Any]:
    """Encode a universe. Sets of units become lists of their members, because most sets are small and the integers can
    have ten thousand bits.
    """
    return {
        "variant": universe.variant,
        "solo": universe.solo,
        "weightless": universe.weightless,
        "op": universe.op,
        "names": universe.names,
        "tensors": universe.tensors,
        "successors": [list(members(units)) for units in universe.successors],
        "needs": [[unit, list(members(units))] for unit, units in sorted(universe.required_producers.items())],
        "advertised": None if universe.advertised is None else sorted(universe.advertised),
        "doubted": list(members(universe.doubted)),
    }


def from_json(fields: dict[str, Any]) -> Universe:
    """Decode what `to_json` returned."""
    advertised = fields["advertised"]
    return Universe(
        variant=tuple(fields["variant"]),
        solo=tuple(fields["solo"]),
        weightless=tuple(fields.get("weightless", ())),  # earlier versions wrote none
        op=tuple(fields["op"]),
        names=tuple(tuple(names) for names in fields["names"]),
        tensors=tuple(tuple(tensors) for tensors in fields["tensors"]),
        successors=tuple(_units(units) for units in fields["successors"]),
        required_producers={unit: _units(units) for unit, units in fields["needs"]},
        advertised=None if advertised is None else frozenset(advertised),
        doubted=_units(fields.get("doubted", [])),
    )


def _units(numbers: list[int]) -> UnitSet:
    return of(numbers)
