"""What people do today, without a tool: try each piece alone, or halve the list of nodes."""

from collections.abc import Callable
from dataclasses import dataclass

from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe

Refused = Callable[[UnitSet], bool]


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a peer cost and what it blames."""

    calls: int
    found: frozenset[UnitSet]


def each_node(universe: Universe, refused: Refused) -> Scan:
    """The whole model, then every unit alone."""
    failing = frozenset(1 << unit for unit in range(len(universe)) if refused(1 << unit))
    return Scan(calls=len(universe) + 1, found=failing)


def each_variant(universe: Universe, refused: Refused) -> Scan:
    """The whole model, then one unit of each variant alone; its siblings share the answer."""
    failing: set[UnitSet] = set()
    for siblings in universe.variant_members:
        first, *others = members(siblings)
        if refused(1 << first):
            failing |= {1 << unit for unit in (first, *others)}
    return Scan(calls=len(universe.variant_members) + 1, found=frozenset(failing))


def recursive_bisection(universe: Universe, refused: Refused) -> Scan:
    """Ask an interval of the node order; where it fails, ask both halves, down to single units.

    Where both halves pass, the interval itself is what is blamed.
    """
    answers: dict[tuple[int, int], bool] = {}

    def ask(first: int, last: int) -> bool:
        answers[first, last] = refused(of(range(first, last)))
        return answers[first, last]

    found: set[UnitSet] = set()
    failing = [(0, len(universe))] if ask(0, len(universe)) else []
    while failing:
        first, last = failing.pop()
        middle = (first + last) // 2
        halves = [(first, middle), (middle, last)] if last - first > 1 else []
        worse = [half for half in halves if ask(*half)]
        failing += worse
        if not worse:
            found.add(of(range(first, last)))
    return Scan(calls=len(answers), found=frozenset(found))
