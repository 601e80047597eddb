"""Probes that hold a suspect with its neighbourhood: one of them that passes is evidence that it is not to blame.

An op that fails alone may be fine where it is fused among other units. The neighbours may be suspects themselves,
which a remainder lacks; so they are put back as well.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from onnxbisect.search.pattern import components, joined
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: How many steps of dataflow around a suspect are its context. GELU and attention written out lie within, and layer
#: normalisation up to its last Add.
REACH = 4
#: Another suspect within so many steps may be what excuses one: they feed or consume each other, or the same unit.
NEAR = 2
#: So many groups of a suspect and others near it are asked, where it stands nowhere without them.
FEW_NEAR = 3
#: How many steps show whether an op belongs to a fused pattern.
PATTERN = 3
#: So many different direct contexts of one op are all asked about; of more, only those that the model repeats.
FEW_CONTEXTS = 3
#: A group of suspects that stands in so many places may be a fused pattern.
_REPEATED = 3
#: So many parts of a group of suspects are asked about.
_MOST_WINDOWS = 8
#: In a model of so few units the neighbourhood of a suspect is most of the model. Nothing outside of it shows how its
#: parts behave, so it is asked about in every way; such a model compiles fast.
FEW_UNITS = 12
#: In such a model, so many places of one suspect are asked about.
_MOST_PLACES = 6
#: A model of so few units is asked about in every way whatever a log names: that costs a handful of calls.
VERY_FEW_UNITS = 4


def neighbours_kept(universe: Universe, unit: int, remainder: UnitSet, steps: int = NEAR) -> tuple[bool, int, int]:
    """How much of what is near a unit the remainder has.

    Whether the unit has neighbours, all of them in the remainder; how many units within so many steps are not, as a
    number of at most zero; how many neighbours are.
    """
    around = universe.neighbours(1 << unit)
    near = universe.ball(1 << unit, steps) & ~(1 << unit)
    kept = around & remainder
    return bool(around) and kept == around, -size(near & ~remainder), size(kept)


def place_with_most_neighbours(universe: Universe, suspect: Suspect, remainder: UnitSet, steps: int) -> int:
    """The unit of a single suspect that keeps most of what is within so many steps: there it is likeliest to be fused.

    Alone the places of one shape are one probe, so this costs no question.
    """
    solo = universe.solo
    own = lowest(suspect.units)
    places = [unit for (unit,) in suspect.occurrences if solo[unit] == solo[own]]
    return max(places, key=lambda unit: (neighbours_kept(universe, unit, remainder, steps), unit == own))


def other_contexts(universe: Universe, suspect: Suspect, remainder: UnitSet, *, all_of_them: bool) -> list[UnitSet]:
    """Probes of a single suspect's op in other contexts than its own, none where there is no need.

    What fails in one context may be fine in another, fused there. First one unit of each direct context, all
    together; then alone those contexts that the model repeats, since a fused pattern is one that repeats. Contexts that
    are many and hardly repeat are taken to be alike, unless `all_of_them`.
    """
    around = universe.op_surroundings
    contexts = _grouped(members(suspect.everywhere), around)
    most = len(contexts[0])
    few = len(contexts) <= FEW_CONTEXTS
    if not (all_of_them or few) and (most == 1 or most * 4 < len(suspect.occurrences)):
        return []
    own = lowest(suspect.units)
    others = [units[0] for units in contexts if around[units[0]] != around[own]]
    kind = universe.op_neighbourhoods
    repeated = [
        units[0]
        for units in _grouped(members(suspect.everywhere), kind)
        if kind[units[0]] != kind[own] and len(units) > 1 and len(units) * 8 >= len(suspect.occurrences)
    ]
    chosen = [of(others), *[1 << unit for unit in repeated[:FEW_CONTEXTS]]]
    return [universe.ball(units, PATTERN, remainder | units) for units in dict.fromkeys(chosen) if units]


def _grouped(units: Iterable[int], kind: Sequence[int]) -> list[list[int]]:
    """The units of each kind, the commonest first."""
    groups: dict[int, list[int]] = {}
    for unit in units:
        groups.setdefault(kind[unit], []).append(unit)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0]))


def clusters(universe: Universe, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet) -> list[UnitSet]:
    """A suspect's places with the suspected units beside them, and what lies around in the remainder.

    With those that are direct neighbours, where the suspect nowhere has all its neighbours in the remainder; and with
    all within a pattern's reach, where such a group repeats. One group of each kind: all of it, then its parts, since
    some of it may be fused and some to blame.
    """
    masked = union(other.everywhere for other in suspects if not other.capacity)
    complete, lacking, _ = neighbours_kept(universe, lowest(suspect.units), remainder)
    chosen: list[UnitSet] = []
    for steps in (1, PATTERN):
        kinds: dict[int, list[tuple[int, UnitSet]]] = {}
        for unit in members(suspect.everywhere):
            cluster = _cluster(universe, 1 << unit, masked, steps)
            if size(cluster) > 1:
                kinds.setdefault(universe.op_neighbourhoods[unit], []).append((unit, cluster))
        places = list(kinds.values())
        if complete or steps > 1:
            places = [found for found in places if len(found) > 1 and len(found) * 4 >= len(suspect.occurrences)]
        for alike in places[:FEW_CONTEXTS]:
            unit, cluster = alike[0]
            chosen.append(cluster)
            if len(alike) >= _REPEATED:
                chosen += windows(universe, unit, masked, PATTERN, _MOST_WINDOWS)
    if lacking:
        singles = union(other.everywhere for other in suspects if other.single)
        chosen += windows(universe, lowest(suspect.units), singles, NEAR, FEW_NEAR)
    return [universe.ball(cluster, PATTERN, remainder | cluster) for cluster in dict.fromkeys(chosen)]


def windows(universe: Universe, unit: int, masked: UnitSet, steps: int, most: int) -> list[UnitSet]:
    """A unit with one or two of the masked units within so many steps: connected ones first, then small ones.

    At most so many, of the nearest units.
    """
    near: list[int] = []
    for reach in range(1, steps + 1):
        near += members(universe.ball(1 << unit, reach) & masked & ~of([unit, *near]))
    groups = [of((unit, *others)) for count in (1, 2) for others in combinations(near[:most], count)]
    return sorted(groups, key=lambda group: (len(components(universe, group)), size(group)))[:most]


def _cluster(universe: Universe, units: UnitSet, masked: UnitSet, steps: int = PATTERN) -> UnitSet:
    while (grown := universe.ball(units, steps) & masked | units) != units and size(grown) <= 4 * PATTERN:
        units = grown
    return units


def every_way(universe: Universe, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet) -> list[UnitSet]:
    """All sorts of contexts of a suspect in a small model: what it is excused by is in one of them, if anything."""
    masked = union(other.everywhere for other in suspects if not other.capacity)
    kinds: dict[tuple[int, ...], UnitSet] = {}
    for place in suspect.occurrences:
        units = of(place)
        kinds.setdefault((size(universe.ball(units, 1)), *_neighbourhoods(universe, units)), units)
    found: list[UnitSet] = []
    for units in list(kinds.values())[:_MOST_PLACES]:
        found.append(remainder | units)
        found += [joined(universe, units | 1 << other, universe.everything) for other in _outwards(universe, units)]
        found += [(remainder | units) & ~(1 << other) for other in members(remainder & ~units)]
        found += [universe.ball(units, steps) for steps in (1, 2, 3)]
        found += [universe.ball(units, steps, remainder | units) for steps in (1, 2)]
        beside = _cluster(universe, units, masked) & ~units
        found.append(remainder | units | beside)
        nearest = universe.ball(units, 1) & beside
        found += [remainder | units | 1 << other for other in members(beside)]
        found.append(remainder | units | nearest)
        found += [universe.everything & ~(1 << other) for other in members(universe.everything & ~units)]
        found += [units | 1 << other for other in _outwards(universe, units)]
    kept_out = [other.everywhere for other in suspects if other is not suspect]
    found += [universe.everything & ~others | suspect.units for others in kept_out]
    return [probe for probe in dict.fromkeys(found) if is_subset(suspect.units, probe) or suspect.held_by(probe)]


def _outwards(universe: Universe, units: UnitSet) -> list[int]:
    """All other units, the nearest first."""
    order: list[int] = []
    reached = units
    while frontier := universe.neighbours(reached) & ~reached:
        order += members(frontier)
        reached |= frontier
    return order + list(members(universe.everything & ~reached))


def _neighbourhoods(universe: Universe, units: UnitSet) -> list[int]:
    return sorted(universe.neighbourhoods[unit] for unit in members(units))
