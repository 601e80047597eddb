"""Probes of a suspect with its neighbourhood. If one of them passes, the suspect is not to blame.

An op that fails alone may compile where it is fused with its neighbours. The neighbours may be suspects themselves,
which a remainder leaves out, so these probes put them back.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product

from onnxbisect.search.pattern import occurrences
from onnxbisect.search.state import Occurrence, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Steps of dataflow around a suspect that are its context. Decomposed GELU and attention lie within, and layer
#: normalisation up to its last Add.
REACH = 4
#: Steps within which another suspect may make one pass: producers, consumers, and their other neighbours.
NEAR = 2
#: Most groups of a suspect and others near it that are asked if it occurs nowhere without them.
FEW_NEAR = 3
#: Steps that show whether an op belongs to a fused pattern.
PATTERN = 3
#: Up to so many direct contexts of one op are all asked; of more, only those that the model repeats.
FEW_CONTEXTS = 3
#: Places from which on a group of suspects may be a fused pattern.
_REPEATED = 3
#: Most units of a group that fail alone, passed together, and are taken for a fused pattern.
_MOST_TOGETHER = 6
#: Most such groups that are looked for elsewhere.
_MOST_GROUPS = 4
#: Most parts of a group of suspects that are asked.
_MOST_WINDOWS = 8
#: An op of a small model may be asked in any connected set of at most so many units, because what a compiler fuses may
#: overlap with what it refuses: then every larger set fails.
FUSED = 4
#: Most places of one suspect that are asked in such a model.
_MOST_PLACES = 6
#: Most readers of an op that it is asked with, one by one (`fused_pieces`).
_MOST_READERS = 2
#: In a model of at most so many units all contexts are asked even if a log names the op; that costs few calls.
VERY_FEW_UNITS = 4


def neighbours_kept(universe: Universe, unit: int, remainder: UnitSet, steps: int = NEAR) -> tuple[bool, int, int]:
    """A key for how much of a unit's neighbourhood the remainder keeps; larger is more.

    Whether the unit has neighbours and all of them are kept; minus the number of units within `steps` that are left
    out; the number of neighbours kept.
    """
    around = universe.neighbours(1 << unit)
    near = universe.ball(1 << unit, steps) & ~(1 << unit)
    kept = around & remainder
    return bool(around) and kept == around, -size(near & ~remainder), size(kept)


def place_with_most_neighbours(universe: Universe, suspect: Suspect, remainder: UnitSet, steps: int) -> int:
    """The place of a single suspect that keeps most units within `steps`, where a fusion is most likely.

    Places of one shape share a probe when asked alone, so moving to another one costs no call.
    """
    solo = universe.solo
    own = lowest(suspect.units)
    places = [unit for (unit,) in suspect.occurrences if solo[unit] == solo[own]]

    def fused(unit: int) -> tuple[bool, int, bool, int, bool]:
        complete, lacking, kept = neighbours_kept(universe, unit, remainder, steps)
        plain = next(fused_pieces(universe, unit, universe.everything), 0) == 0
        return complete, lacking, plain, kept, unit == own

    return max(places, key=fused)


def between_neighbours(universe: Universe, unit: int, within: UnitSet) -> UnitSet:
    """An op with one that it reads and one that reads it, such that nothing else in the piece reads what these make.

    If there are several that it reads, one that something else in the model reads. 0 if there is neither.
    """
    one, before = 1 << unit, universe.predecessors[unit] & within
    shared = of(it for it in members(before) if universe.successors[it] & ~one)
    producer = 1 << lowest(shared or before) if before else 0
    readers = universe.successors[unit] & within & ~union(universe.successors[it] for it in members(producer))
    beside = producer | (1 << lowest(readers) if readers else 0)
    return beside and beside | one


def fused_pieces(
    universe: Universe, unit: int, within: UnitSet, others: UnitSet = 0, *, shared: bool = True
) -> Iterator[UnitSet]:
    """An op with what a compiler may fuse it with where nothing else reads that, though in the model something does.

    That is each op that it reads, all of them with what they read without `others`, each op that reads it, and one of
    either. Without `shared`, also where nothing else in the model reads these.
    """
    one = 1 << unit
    before = universe.predecessors[unit] & within
    earlier = union(universe.predecessors[it] for it in members(before)) & within & ~(one | others)
    producers = [1 << it for it in members(before)]
    for piece in dict.fromkeys([*producers, before | earlier]):
        if piece and (not shared or union(universe.successors[it] for it in members(piece)) & ~(piece | one)):
            yield piece | one
    if not shared or size(universe.successors[unit]) > 1:
        readers = [1 << it for it in members(universe.successors[unit] & within)][:_MOST_READERS]
        yield from (one | reader for reader in readers)
        yield from (one | reader | producer for reader, producer in product(readers, producers))


def other_contexts(universe: Universe, suspect: Suspect, remainder: UnitSet, *, all_of_them: bool) -> list[UnitSet]:
    """Probes of a single suspect's op in contexts other than its own; empty where none is needed.

    An op that fails in one context may be fused, and compile, in another. The first probe has one unit of each direct
    context; the others have one context each, for contexts that the model repeats, because a fused pattern is usually
    repeated. Many contexts that hardly repeat are assumed to behave alike, unless `all_of_them`.
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
    """The units grouped by kind, the most frequent kind first."""
    groups: dict[int, list[int]] = {}
    for unit in units:
        groups.setdefault(kind[unit], []).append(unit)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0]))


def clusters(universe: Universe, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet) -> list[UnitSet]:
    """A suspect's places with other suspects beside them and what the remainder keeps around them.

    Direct neighbours are put back where the suspect has all its neighbours nowhere in the remainder, and suspects
    within a pattern's reach where such a group repeats. Of each kind of group one is asked: first all of it, then its
    parts, because one part may be fused and another to blame. Other places of the suspect's own op are put back where
    they are within that reach, for what it needs there may hold one.
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
    of_its_op = _cluster(universe, suspect.units, suspect.everywhere)
    if size(of_its_op) > 1:
        chosen.append(of_its_op)
    if lacking:
        singles = union(other.everywhere for other in suspects if other.single)
        chosen += windows(universe, lowest(suspect.units), singles, NEAR, FEW_NEAR)
    return [universe.ball(cluster, PATTERN, remainder | cluster) for cluster in dict.fromkeys(chosen)]


def passed_together(universe: Universe, passing: Iterable[UnitSet], doubted: UnitSet, within: UnitSet) -> list[UnitSet]:
    """Small connected groups of `doubted` units, which fail alone, that passed together; smallest first.

    Only groups with a unit of `within`. What connects them belongs to the group.
    """
    groups = []
    for passed in passing:
        together = passed & doubted
        if not 2 <= size(together) <= _MOST_TOGETHER or not together & within:
            continue
        near = universe.ball(1 << lowest(together), 2 * PATTERN, passed)
        if is_subset(together, near):
            groups.append(universe.joined(together, near))
    return sorted(dict.fromkeys(groups), key=lambda group: (size(group), group))[:_MOST_GROUPS]


def like_groups_that_passed(universe: Universe, suspect: Suspect, groups: Iterable[UnitSet]) -> list[UnitSet]:
    """The groups at places of a single suspect that look like ones that passed (`passed_together`), nothing else.

    Of places whose neighbourhoods are alike, the first.
    """
    kinds: dict[tuple[UnitSet, int], UnitSet] = {}
    for group in groups:
        for place in occurrences(universe, group):
            for unit in members(of(place) & suspect.everywhere):
                kinds.setdefault((group, universe.neighbourhoods[unit]), of(place))
    return list(dict.fromkeys(kinds.values()))


def windows(universe: Universe, unit: int, masked: UnitSet, steps: int, most: int) -> list[UnitSet]:
    """A unit with one or two of the masked units within `steps`: connected groups first, then small ones.

    At most `most` groups, of the nearest units.
    """
    near: list[int] = []
    for reach in range(1, steps + 1):
        near += members(universe.ball(1 << unit, reach) & masked & ~of([unit, *near]))
    groups = [of((unit, *others)) for count in (1, 2) for others in combinations(near[:most], count)]
    return sorted(groups, key=lambda group: (len(universe.components(group)), size(group)))[:most]


def _cluster(universe: Universe, units: UnitSet, masked: UnitSet, steps: int = PATTERN) -> UnitSet:
    while (grown := universe.ball(units, steps) & masked | units) != units and size(grown) <= 4 * PATTERN:
        units = grown
    return units


def computed_from(universe: Universe, units: UnitSet) -> UnitSet:
    """These units with all that is before them: nothing that they read is cut, where a compiler may refuse the cut."""
    while (grown := units | union(universe.predecessors[unit] for unit in members(units))) != units:
        units = grown
    return units


def grown_contexts(universe: Universe, suspect: Suspect) -> list[UnitSet]:
    """A suspect of a small model with all that is next to it, and with each unit of that, at each kind of place."""
    found: list[UnitSet] = []
    for units in kinds_of_places(universe, (tuple(members(suspect.units)), *suspect.occurrences)):
        found += [universe.ball(units, 1), *connected(universe, units, size(units) + 1)]
    return [probe for probe in dict.fromkeys(found) if probe != universe.everything]


def kinds_of_places(universe: Universe, occurrences: Iterable[Occurrence]) -> list[UnitSet]:
    """One place for each kind of neighbourhood; at most `_MOST_PLACES`."""
    kinds: dict[tuple[int, ...], UnitSet] = {}
    for place in occurrences:
        units = of(place)
        kinds.setdefault(
            (size(universe.ball(units, 1)), *sorted(universe.neighbourhoods[unit] for unit in members(units))), units
        )
    return list(kinds.values())[:_MOST_PLACES]


def connected(universe: Universe, units: UnitSet, most: int) -> list[UnitSet]:
    """All sets of at most so many units that hold these and are reached from them step by step; small ones first."""
    found: list[UnitSet] = []
    layer = [units]
    for _ in range(most - size(units)):
        grown = (one | 1 << other for one in layer for other in members(universe.neighbours(one) & ~one))
        layer = list(dict.fromkeys(grown))
        found += layer
    return found
