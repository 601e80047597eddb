"""What could excuse a suspect: company in which an op that fails alone may be fine, because it is fused there.

Every function gives probes; one of them that passes clears the suspect. Which are asked is a matter of price: what
is nearest to a fused pattern that the evidence so far cannot have seen.
"""

from collections.abc import Sequence
from dataclasses import replace

from onnxbisect.search.pattern import neighbours
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe

#: How many steps show whether an op belongs to a fused pattern.
PATTERN = 3
#: So many different direct contexts of one op are all asked about; of more, only those that the model repeats.
FEW_CONTEXTS = 3


def near(universe: Universe, units: UnitSet, remainder: UnitSet, steps: int) -> UnitSet:
    """What of the remainder lies within so many steps of dataflow of the units."""
    found = units
    for _ in range(steps):
        found |= neighbours(universe, found) & remainder
    return found & remainder


def company(universe: Universe, unit: int, remainder: UnitSet) -> tuple[bool, int]:
    """Whether a unit has neighbours, and all of them in the remainder; and how many of them it has there."""
    around = neighbours(universe, 1 << unit)
    kept = around & remainder
    return bool(around) and kept == around, size(kept)


def placed(universe: Universe, suspect: Suspect, remainder: UnitSet) -> Suspect:
    """A single suspect as the occurrence that keeps most of what stands beside it: the likeliest to be fused.

    Alone they are one probe, so this costs no question.
    """
    solo = universe.solo
    own = lowest(suspect.units)
    places = [unit for (unit,) in suspect.occurrences if solo[unit] == solo[own]]
    best = max(places, key=lambda unit: (company(universe, unit, remainder), unit == own))
    return replace(suspect, units=1 << best)


def other_contexts(universe: Universe, suspect: Suspect, remainder: UnitSet, *, all_of_them: bool) -> UnitSet:
    """A probe of a single suspect's op in other direct contexts than its own, 0 where there is no need.

    What fails in one context may be fine in another, fused there. One unit stands for each context. Contexts that
    are many and hardly repeat are taken to be alike, unless `all_of_them`: a fused pattern is one that repeats.
    """
    around = universe.op_surroundings
    contexts: dict[int, list[int]] = {}
    for unit in members(suspect.everywhere):
        contexts.setdefault(around[unit], []).append(unit)
    most = max(len(units) for units in contexts.values())
    if not all_of_them and (most == 1 or most * 4 < len(suspect.occurrences)):
        return 0
    own = around[lowest(suspect.units)]
    others = of(units[0] for context, units in contexts.items() if context != own)
    return near(universe, others, remainder, PATTERN) | others if others else 0


def together(universe: Universe, suspects: Sequence[Suspect], remainder: UnitSet) -> dict[Suspect, UnitSet]:
    """For single suspects that stand near each other wherever they occur, a probe with all of them put back.

    Such ops may be parts of one fused pattern, which was masked in one go: then each fails without the rest.
    """
    left = _lonely(universe, suspects, remainder, 2)
    found: dict[Suspect, UnitSet] = {}
    while left:
        group = [left.pop(0)]
        for member in group:
            joining = [one for one in left if _always_near(universe, member, one)]
            group += joining
            left = [one for one in left if one not in joining]
        if len(group) > 1:
            everywhere = 0
            for member in group:
                everywhere |= member.everywhere
            units = group[0].units
            for _ in group:
                units |= _steps(universe, units, 2) & everywhere
            found |= dict.fromkeys(group, near(universe, units, remainder, PATTERN) | units)
    return found


def pairs(universe: Universe, suspects: Sequence[Suspect], remainder: UnitSet) -> dict[Suspect, list[UnitSet]]:
    """For each single suspect that nowhere has all its neighbours back, itself with each kind of those others.

    What is fused with its own like, or with a part of another suspect's pattern, is never in a remainder with it.
    """
    lonely = _lonely(universe, suspects, remainder, 1)
    masked = 0
    for suspect in lonely:
        masked |= suspect.everywhere
    return {suspect: _with_each(universe, suspect, masked) for suspect in lonely}


def without_a_neighbour(universe: Universe, suspect: Suspect, blame: UnitSet) -> list[UnitSet]:
    """The failing context without each direct neighbour: one may fail with a suspect that another would excuse."""
    return [blame & ~(1 << unit) for unit in members(neighbours(universe, suspect.units) & blame)]


def _lonely(universe: Universe, suspects: Sequence[Suspect], remainder: UnitSet, steps: int) -> list[Suspect]:
    """Those that nowhere have all that lies within so many steps in the remainder."""

    def has_company(unit: int) -> bool:
        around = _steps(universe, 1 << unit, steps) & ~(1 << unit)
        return bool(around) and is_subset(around, remainder)

    return [suspect for suspect in suspects if not any(map(has_company, members(suspect.everywhere)))]


def _with_each(universe: Universe, suspect: Suspect, masked: UnitSet) -> list[UnitSet]:
    found: dict[tuple[int, int, bool], UnitSet] = {}
    for unit in members(suspect.everywhere):
        for others, after in ((universe.successors[unit], True), (universe.predecessors[unit], False)):
            for other in members(others & masked):
                found.setdefault((universe.solo[unit], universe.solo[other], after), 1 << unit | 1 << other)
    return list(dict.fromkeys(found.values()))


def _always_near(universe: Universe, one: Suspect, other: Suspect) -> bool:
    def beside(these: Suspect, those: Suspect) -> bool:
        return all(_steps(universe, 1 << unit, 2) & those.everywhere for unit in members(these.everywhere))

    return beside(one, other) and beside(other, one)


def _steps(universe: Universe, units: UnitSet, steps: int) -> UnitSet:
    for _ in range(steps):
        units |= neighbours(universe, units)
    return units
