"""Which units run on the NPU: what was seen to compile together, less what is cheaper to leave to the host."""

from collections.abc import Container, Iterator, Sequence

from onnxbisect.errors import CutError
from onnxbisect.split.flow import ancestors, descendants
from onnxbisect.split.schedule import Kind, Part, schedule
from onnxbisect.split.work import Work, total
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from onnxbisect.universe import Universe

#: How much of the NPU's work may move to the host so that fewer pieces remain.
SHARE = 0.1
#: Passing probes that are tried: there are as many as ways to break all culprits, and mostly one.
_MOST_PROBES = 8


def choose(
    universe: Universe, needed: UnitSet, passed: Sequence[UnitSet], work: Work, share: float = SHARE
) -> tuple[Part, ...]:
    """The units of `needed` as parts of alternating kind, in an order in which they can run.

    `passed` are the sets of units that were seen to compile; the NPU's units are all of one of them, and in one part
    with their `required_producers` unless the part was seen to compile without. Of the orders found that leave the NPU
    all but `share` of the most work that it can have, this is one with the fewest NPU parts, then the fewest
    parts, then the most NPU parts that were seen to compile as they are, then the most work on the NPU. Raises CutError
    where nothing that is needed was seen to compile.
    """
    probes = _largest(passed, needed)
    seen = frozenset(units & needed for units in passed)
    most = max((_weight(_settled(universe, needed, probe, seen), work) for probe in probes), default=0.0)
    if not most:
        raise CutError("None of the nodes that the outputs need was seen to compile: there is nothing for the NPU.")
    least = (1 - share) * most

    def cost(parts: tuple[Part, ...]) -> tuple[float, ...]:
        npu = _on_npu(parts)
        return len(npu), len(parts), -sum(units in seen for units in npu), -_weight(parts, work)

    orders = (parts for probe in probes for parts in _orders(universe, needed, probe, seen, work, least))
    return min(orders, key=cost)


def _largest(passed: Sequence[UnitSet], needed: UnitSet) -> list[UnitSet]:
    """The needed units of each probe, without those that are part of another; the largest first."""
    found: list[UnitSet] = []
    for units in sorted({units & needed for units in passed} - {0}, key=lambda it: (-size(it), it)):
        if len(found) < _MOST_PROBES and not any(is_subset(units, other) for other in found):
            found.append(units)
    return found


def _orders(
    universe: Universe, needed: UnitSet, npu: UnitSet, seen: Container[UnitSet], work: Work, least: float
) -> Iterator[tuple[Part, ...]]:
    """Orders in which the NPU has units of `npu` only, and at least so much work."""
    for on_host in (0, *_ends(universe, needed, needed & ~npu, work)):
        parts = _settled(universe, needed, npu & ~on_host, seen)
        while (weight := _weight(parts, work)) and weight >= least:
            yield parts
            spare = _smallest(parts, work, weight - least)
            if not spare:
                break
            parts = _settled(universe, needed, union(_on_npu(parts)) & ~spare, seen)


def _settled(universe: Universe, needed: UnitSet, npu: UnitSet, seen: Container[UnitSet]) -> tuple[Part, ...]:
    """The schedule with units on the host whose NPU part would lack what they need."""
    while True:
        parts = schedule(universe, npu, needed & ~npu)
        lacking = of(
            unit
            for part in _on_npu(parts)
            if part not in seen
            for unit in members(part)
            if universe.required_producers.get(unit, 0) & ~part
        )
        if not lacking:
            return parts
        npu &= ~lacking


def _on_npu(parts: Sequence[Part]) -> list[UnitSet]:
    return [part.units for part in parts if part.kind is Kind.NPU]


def _weight(parts: Sequence[Part], work: Work) -> float:
    return total(work, union(_on_npu(parts)))


def _ends(universe: Universe, needed: UnitSet, host: UnitSet, work: Work) -> tuple[UnitSet, ...]:
    """Sets around `host` without which one NPU part is left: all before it, all behind it, each unit's nearer end."""
    before, behind = ancestors(universe), descendants(universe)
    nearer = union(
        min(before[unit] & needed, behind[unit] & needed, key=lambda end: total(work, end & ~host))
        for unit in members(host)
    )
    return (
        union(before[unit] for unit in members(host)) & needed,
        union(behind[unit] for unit in members(host)) & needed,
        nearer,
    )


def _smallest(parts: Sequence[Part], work: Work, most: float) -> UnitSet:
    """The smallest NPU parts that have `most` work together, never the largest one."""
    weighed = sorted((total(work, units), units) for units in _on_npu(parts))
    found = 0
    for weight, units in weighed[:-1]:
        most -= weight
        if most < 0:
            break
        found |= units
    return found
