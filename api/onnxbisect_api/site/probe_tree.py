"""The nesting of probes, shown as the tree of a search."""

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onnxbisect.unitset import UnitSet, size


@dataclass(frozen=True, kw_only=True)
class Place:
    """A probe's place: `index` is its number in the order of asking, `depth` the number of probes that contain it."""

    index: int
    parent: int | None
    depth: int


def parents(asked: Sequence[UnitSet]) -> list[int | None]:
    """For each probe, in the order of asking, the smallest earlier one that contains it properly; the first of equal
    ones.

    This is not what made the search ask it: the planner replays all answers each time, and records no such thing. Only
    containment and order are known for any two probes.
    """
    earlier: list[tuple[int, int]] = []
    found: list[int | None] = []
    for index, units in enumerate(asked):
        count = size(units)
        start = bisect_left(earlier, (count + 1, -1))
        # inlined `is_subset` takes half the time: two thousand probes have two million pairs
        around = (other for _, other in earlier[start:] if units & asked[other] == units)
        found.append(next(around, None))
        insort(earlier, (count, index))
    return found


def nested(parent: Sequence[int | None], shown: Collection[int]) -> list[Place]:
    """The `shown` ones, each after its parent; those with the same parent in the order of asking."""
    nearest: list[int | None] = []
    depth = [0] * len(parent)
    below: dict[int | None, list[int]] = {}
    for index, above in enumerate(parent):
        within = above if above is None or above in shown else nearest[above]
        nearest.append(within)
        if index in shown:
            depth[index] = 0 if within is None else depth[within] + 1
            below.setdefault(within, []).append(index)
    places: list[Place] = []
    left = below.get(None, [])[::-1]
    while left:
        index = left.pop()
        places.append(Place(index=index, parent=nearest[index], depth=depth[index]))
        left += below.get(index, [])[::-1]
    return places
