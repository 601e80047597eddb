"""Choose the units that run on the NPU: those that compiled together, minus those that the host runs more cheaply."""

from collections.abc import Container, Iterator, Sequence

from onnxbisect.errors import CutError
from onnxbisect.split.flow import ancestors, descendants
from onnxbisect.split.schedule import PieceKind, PieceUnits, schedule
from onnxbisect.split.work import Work, total
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from onnxbisect.universe import Universe

#: Default share of the NPU's work that may move to the host to reduce the number of pieces.
SHARE = 0.1
#: Most passing probes that are tried. The culprits can be avoided in several ways, but mostly there is only one.
_MOST_PROBES = 8


def choose(
    universe: Universe, needed: UnitSet, passed: Sequence[UnitSet], work: Work, share: float = SHARE
) -> tuple[PieceUnits, ...]:
    """The units of `needed` as parts of alternating kind, in an order in which they can run.

    `passed` are the sets of units that compiled as one probe; the NPU's units are all from one of them. A unit is in
    one part with its `required_producers`, unless exactly that part compiled without them. Only orders that leave the
    NPU all but `share` of its largest possible work count. Of those found, the result has the fewest NPU parts, then
    the fewest parts, then the most NPU parts that compiled exactly as they are, then the most work on the NPU. Raises
    CutError where no needed unit compiled.
    """
    probes = _largest(passed, needed)
    seen = frozenset(units & needed for units in passed)
    most = max((_weight(_settled(universe, needed, probe, seen), work) for probe in probes), default=0.0)
    if not most:
        raise CutError("None of the nodes that the outputs need was seen to compile: there is nothing for the NPU.")
    least = (1 - share) * most

    def cost(parts: tuple[PieceUnits, ...]) -> tuple[float, ...]:
        npu = _on_npu(parts)
        return len(npu), len(parts), -sum(units in seen for units in npu), -_weight(parts, work)

    orders = (parts for probe in probes for parts in _orders(universe, needed, probe, seen, work, least))
    return min(orders, key=cost)


def _largest(passed: Sequence[UnitSet], needed: UnitSet) -> list[UnitSet]:
    """The needed units of each probe, largest first, without subsets of a set that is already in the result."""
    found: list[UnitSet] = []
    for units in sorted({units & needed for units in passed} - {0}, key=lambda it: (-size(it), it)):
        if len(found) < _MOST_PROBES and not any(is_subset(units, other) for other in found):
            found.append(units)
    return found


def _orders(
    universe: Universe, needed: UnitSet, npu: UnitSet, seen: Container[UnitSet], work: Work, least: float
) -> Iterator[tuple[PieceUnits, ...]]:
    """Orders whose NPU parts contain only units of `npu` and do at least `least` work."""
    for on_host in (0, *_ends(universe, needed, needed & ~npu, work)):
        parts = _settled(universe, needed, npu & ~on_host, seen)
        while (weight := _weight(parts, work)) and weight >= least:
            yield parts
            spare = _smallest(parts, work, weight - least)
            if not spare:
                break
            parts = _settled(universe, needed, union(_on_npu(parts)) & ~spare, seen)


def _settled(universe: Universe, needed: UnitSet, npu: UnitSet, seen: Container[UnitSet]) -> tuple[PieceUnits, ...]:
    """The schedule after moving units to the host whose NPU part would lack their required producers."""
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


def _on_npu(parts: Sequence[PieceUnits]) -> list[UnitSet]:
    return [part.units for part in parts if part.kind is PieceKind.NPU]


def _weight(parts: Sequence[PieceUnits], work: Work) -> float:
    return total(work, union(_on_npu(parts)))


def _ends(universe: Universe, needed: UnitSet, host: UnitSet, work: Work) -> tuple[UnitSet, ...]:
    """Sets around `host` that, moved to the host too, leave one NPU part: all before, all after, or each nearer end."""
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


def _smallest(parts: Sequence[PieceUnits], work: Work, most: float) -> UnitSet:
    """The smallest NPU parts that together have at most `most` work, never including the largest part."""
    weighed = sorted((total(work, units), units) for units in _on_npu(parts))
    found = 0
    for weight, units in weighed[:-1]:
        most -= weight
        if most < 0:
            break
        found |= units
    return found
