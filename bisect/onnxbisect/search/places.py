"""At which of its places a refused op was seen to fail where it stands."""

from collections.abc import Sequence

from onnxbisect.search.oracle import Oracle
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe


def seen_to_fail(universe: Universe, record: Oracle, suspects: Sequence[Suspect]) -> UnitSet:
    """The units of single suspects that a failing probe blames where they stand, and those that stand alike.

    Such a probe holds one suspected unit and all its neighbours. Neighbours that are suspects themselves could excuse
    it, so there is a second one for each of these, with both of them. A log that names a unit where all its
    neighbours are present does for both. Units stand alike where what lies within three steps looks alike.
    """
    suspected = union(suspect.everywhere for suspect in suspects if not suspect.capacity)
    alone: UnitSet = 0
    pairs: set[UnitSet] = set()
    named: UnitSet = 0
    for failing in record.failing:
        inside = failing & suspected
        if size(inside) == 1 and is_subset(universe.neighbours(inside) & ~suspected, failing):
            alone |= inside
        elif size(inside) == 2:
            pairs.add(inside)
        for unit in members(record.named_in(failing) & suspected):
            if is_subset(universe.neighbours(1 << unit), failing):
                named |= 1 << unit
    seen = named | of(
        unit
        for unit in members(alone)
        if all(1 << unit | 1 << other in pairs for other in members(universe.neighbours(1 << unit) & suspected))
    )
    return union(_alike(universe, suspect, seen) for suspect in suspects if suspect.single)


def _alike(universe: Universe, suspect: Suspect, seen: UnitSet) -> UnitSet:
    around = universe.neighbourhoods
    own = 1 << lowest(suspect.units)
    if suspect.blame is not None and is_subset(universe.neighbours(own), suspect.blame):
        seen |= own
    kinds = {around[unit] for unit in members(seen & suspect.everywhere)}
    return of(unit for unit in members(suspect.everywhere) if around[unit] in kinds)
