"""Which units run on the NPU: what was seen to compile together, less what is cheaper to leave to the host."""

from collections.abc import Iterator, Sequence

from onnxbisect.errors import CutError
from onnxbisect.split.flow import ancestors, descendants
from onnxbisect.split.schedule import Kind, Part, schedule
from onnxbisect.split.work import Work, total
from onnxbisect.unitset import UnitSet, is_subset, members, size, union
from onnxbisect.universe import Universe

#: How much of the NPU's work may move to the host so that fewer pieces remain.
SHARE = 0.1
#: Passing probes that are tried: there are as many as ways to break all culprits, and mostly one.
_MOST_PROBES = 8


def choose(
    universe: Universe, needed: UnitSet, passed: Sequence[UnitSet], work: Work, share: float = SHARE
) -> tuple[Part, ...]:
    """The units of `needed` as parts of alternating kind, in an order in which they can run.

    `passed` are the sets of units that were seen to compile; the NPU's units are all of one of them. Of the orders
    found that leave the NPU all but `share` of the most work that it can have, this is one with the fewest NPU parts,
    then the fewest parts, then the most NPU parts that were seen to compile as they are, then the most work on the NPU.
    Raises CutError where nothing that is needed was seen to compile.
    """
    probes = _largest(passed, needed)
    if not probes:
        raise CutError("None of the nodes that the outputs need was seen to compile: there is nothing for the NPU.")
    least = (1 - share) * max(total(work, probe) for probe in probes)
    seen = {units & needed for units in passed}

    def cost(parts: tuple[Part, ...]) -> tuple[float, ...]:
        npu = [part.units for part in parts if part.kind is Kind.NPU]
        return len(npu), len(parts), -sum(units in seen for units in npu), -total(work, union(npu))

    return min((parts for probe in probes for parts in _orders(universe, needed, probe, work, least)), key=cost)


def _largest(passed: Sequence[UnitSet], needed: UnitSet) -> list[UnitSet]:
    """The needed units of each probe, without those that are part of another; the largest first."""
    found: list[UnitSet] = []
    for units in sorted({units & needed for units in passed} - {0}, key=lambda it: (-size(it), it)):
        if len(found) < _MOST_PROBES and not any(is_subset(units, other) for other in found):
            found.append(units)
    return found


def _orders(universe: Universe, needed: UnitSet, npu: UnitSet, work: Work, least: float) -> Iterator[tuple[Part, ...]]:
    """Orders in which the NPU has units of `npu` only, and at least so much work."""
    host = needed & ~npu
    for on_host in (host, *_ends(universe, needed, host, work)):
        left = needed & ~on_host
        while left and total(work, left) >= least:
            parts = schedule(universe, left, needed & ~left)
            yield parts
            spare = _smallest(parts, work, total(work, left) - least)
            if not spare:
                break
            left &= ~spare


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
    weighed = sorted((total(work, part.units), part.units) for part in parts if part.kind is Kind.NPU)
    found = 0
    for weight, units in weighed[:-1]:
        most -= weight
        if most < 0:
            break
        found |= units
    return found
