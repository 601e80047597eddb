"""Suspects of one op that differ in the values of constants only, in places that look alike.

A compiler may refuse an op by a constant's value, so each of them is asked alone. Whether what surrounds them makes
them pass is asked of two by themselves, and of the others together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, lowest, members, of, union
from onnxbisect.universe import Universe

#: Fewest of them of which some are asked together: in their context without each other, those that are asked by
#: themselves take up to ten calls more, to be seen next to each other.
_FEWEST = 12
#: How many are asked by themselves: the first and the last.
_ASKED = 2


@dataclass(frozen=True)
class Kin:
    """Those that are asked by themselves, and the others."""

    asked: tuple[Suspect, ...]
    others: tuple[Suspect, ...]

    @property
    def together(self) -> Suspect:
        """The others as one."""
        places = tuple(place for suspect in self.others for place in suspect.occurrences)
        return replace(self.others[0], units=union(suspect.units for suspect in self.others), occurrences=places)

    @property
    def examples(self) -> UnitSet:
        """The places of those that are asked by themselves."""
        return union(suspect.everywhere for suspect in self.asked)


def kin_among(universe: Universe, suspects: Sequence[Suspect], doubted: Iterable[int]) -> list[Kin]:
    """The suspects that have so many like them, without those known already.

    None of an op of which a variant in `doubted` passed in some place: there each place is a question of its own.
    """
    if not universe.valueless:
        return []
    ops = {universe.op[lowest(universe.variant_members[variant])] for variant in doubted}
    groups: dict[tuple[int, frozenset[int]], list[Suspect]] = {}
    for suspect in suspects:
        unit = lowest(suspect.units)
        if suspect.single and not suspect.contested and universe.op[unit] not in ops:
            places = frozenset(universe.op_neighbourhoods[place] for place in members(suspect.everywhere))
            groups.setdefault((universe.valueless[unit], places), []).append(suspect)
    found = []
    for group in groups.values():
        known = [suspect for suspect in group if suspect.verified and not suspect.like]
        asked = tuple(dict.fromkeys([*known, group[0], group[-1]]))[:_ASKED]
        others = tuple(suspect for suspect in group if not (suspect in asked or suspect.verified))
        if len(group) >= _FEWEST and others:
            found.append(Kin(asked, others))
    return found


def differing_in_constants(universe: Universe, units: UnitSet) -> UnitSet:
    """All units that differ from one of these in the values of constants only, where there are many such variants."""
    if not universe.valueless:
        return 0
    found = 0
    for kind in {universe.valueless[unit] for unit in members(units)}:
        alike = [unit for unit, its_kind in enumerate(universe.valueless) if its_kind == kind]
        if len({universe.variant[unit] for unit in alike}) >= _FEWEST:
            found |= of(alike)
    return found
