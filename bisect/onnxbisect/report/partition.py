"""The remainder as pieces that an NPU can run one after another, with the culprits in between on the host."""

from onnxbisect.split.schedule import Kind, schedule
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe


def pieces(universe: Universe, inside: UnitSet) -> tuple[UnitSet, ...]:
    """Cuts `inside` into as few convex pieces as can be, in an order in which they can run (`split.schedule`)."""
    parts = schedule(universe, inside, universe.everything & ~inside)
    return tuple(part.units for part in parts if part.kind is Kind.NPU)
