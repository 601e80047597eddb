"""Arranges the probes of a search in a tree, by which probe contains which."""

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onnxbisect.unitset import UnitSet, size


@dataclass(frozen=True, kw_only=True)
class Place:
    """A probe in the tree: `index` is its number in the order of the probes, `depth` the number of shown ancestors."""

    index: int
    parent: int | None
    depth: int


def parents(asked: Sequence[UnitSet]) -> list[int | None]:
    """The parent of each probe: the smallest earlier, larger probe that contains it, the first of equally small ones.

    The parent need not be the reason for the probe. The planner replays all answers each time and records no reasons,
    so only containment and order are known.
    """
    earlier: list[tuple[int, int]] = []
    found: list[int | None] = []
    for index, units in enumerate(asked):
        count = size(units)
        start = bisect_left(earlier, (count + 1, -1))
        # `is_subset` is inlined, which halves the time: two thousand probes have two million pairs
        around = (other for _, other in earlier[start:] if units & asked[other] == units)
        found.append(next(around, None))
        insort(earlier, (count, index))
    return found


def nested(parent: Sequence[int | None], shown: Collection[int]) -> list[Place]:
    """The `shown` probes, each after its nearest shown ancestor; siblings are in the order of the probes."""
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
