"""Structure: where else in the model a culprit's pattern occurs, which unit represents its variant, and where numbers
begin to be wrong.
"""

from collections.abc import Callable, Sequence
from itertools import combinations, islice
from math import comb

from onnxbisect.unitset import UnitSet, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Most occurrences of one culprit; the parts of a disconnected pattern multiply.
MOST_OCCURRENCES = 1024

#: Occurrences of an interaction of units far from each other that are all asked, however many of their units are shown.
_FEW_PLACES = 16
#: Most choices of units of an op that are listed one by one.
_FEW_CHOICES = 64
#: Units from which the greedy choice starts.
_STARTS = 8

Occurrence = tuple[int, ...]


def components(universe: Universe, units: UnitSet) -> list[UnitSet]:
    """The weakly connected parts of an induced subgraph, in order of their lowest unit."""
    parts = []
    left = units
    while left:
        part = frontier = 1 << lowest(left)
        while frontier:
            frontier = universe.neighbours(frontier) & units & ~part
            part |= frontier
        parts.append(part)
        left &= ~part
    return parts


def joined(universe: Universe, units: UnitSet, within: UnitSet) -> UnitSet:
    """The units and the shortest paths between them, as far as `within` has paths."""
    first, *others = members(units)
    found = 1 << first
    for unit in others:
        if found >> unit & 1:
            continue
        layers = [found]
        reached = found
        while not reached >> unit & 1 and (frontier := universe.neighbours(layers[-1]) & within & ~reached):
            layers.append(frontier)
            reached |= frontier
        step = 1 << unit
        found |= step
        for layer in reversed(layers[1:-1] if reached >> unit & 1 else []):
            choices = universe.neighbours(step) & layer
            step = 1 << lowest(choices & units or choices)
            found |= step
    return found


def identical(universe: Universe, one: UnitSet) -> UnitSet:
    """All units that are identical to this one when cut out alone."""
    unit = lowest(one)
    same = universe.variant_members[universe.variant[unit]]
    return of(other for other in members(same) if universe.solo[other] == universe.solo[unit])


def alone(universe: Universe, unit: int) -> UnitSet:
    """The probe for one unit cut out alone; the same for all units that are identical alone."""
    return 1 << universe.exemplars[universe.solo[unit]]


def representative(universe: Universe, units: UnitSet) -> int:
    """The unit that represents an atom: the exemplar of its variant if the atom has it, else one like it."""
    exemplar = universe.variant_exemplars[universe.variant[lowest(units)]]
    if units >> exemplar & 1:
        return exemplar
    exemplar = universe.exemplar(units)
    if units >> exemplar & 1:
        return exemplar
    return next(unit for unit in members(units) if universe.solo[unit] == universe.solo[exemplar])


def occurrences(universe: Universe, culprit: UnitSet) -> tuple[Occurrence, ...]:
    """Every place where the culprit's structure occurs, aligned with the culprit's ascending units.

    Within a connected part the variants must agree and its edges must exist; more edges are allowed, and the parts may
    lie anywhere. One unit set is listed once, whatever its symmetries. At most `MOST_OCCURRENCES`, the culprit itself
    first.
    """
    order = tuple(members(culprit))
    parts = [tuple(members(part)) for part in components(universe, culprit)]
    matches = [tuple(_matches(universe, part)) for part in parts]
    # Parts that match the same places take them in ascending order, or their permutations would multiply.
    alike = [
        max((one for one in range(index) if matches[one] == matches[index]), default=None)
        for index in range(len(parts))
    ]
    found: dict[UnitSet, Occurrence] = {culprit: order}

    def combine(index: int, chosen: dict[int, int], places: tuple[int, ...]) -> None:
        if len(found) >= MOST_OCCURRENCES:
            return
        if index == len(parts):
            units = of(chosen.values())
            if units not in found:
                found[units] = tuple(chosen[role] for role in order)
            return
        taken = set(chosen.values())
        before = alike[index]
        for place in range(0 if before is None else places[before] + 1, len(matches[index])):
            match = matches[index][place]
            if taken.isdisjoint(match):
                combine(index + 1, chosen | dict(zip(parts[index], match, strict=True)), (*places, place))

    combine(0, {}, ())
    return tuple(islice(found.values(), MOST_OCCURRENCES))


def enough_to_show(
    universe: Universe, places: Sequence[Occurrence], is_shown: Callable[[Occurrence], bool]
) -> tuple[Occurrence, ...]:
    """Occurrences worth a probe: all, but of many with parts far from each other as many as hold every unit.

    Such parts multiply: 16 of one op and 16 of another are 256 occurrences of 32 units.
    """
    if len(places) <= _FEW_PLACES or len(components(universe, of(places[0]))) == 1:
        return tuple(places)
    chosen = [place for place in places if is_shown(place)]
    shown = union(map(of, chosen))
    left = [(place, of(place)) for place in places]
    while left := [(place, units) for place, units in left if units & ~shown]:
        place, units = max(left, key=lambda it: size(it[1] & ~shown))
        chosen.append(place)
        shown |= units
    return tuple(chosen)


def apart(universe: Universe, units: Sequence[int], count: int) -> UnitSet:
    """`count` of the units with few edges between them, chosen greedily."""
    found = []
    for start in units[:_STARTS]:
        chosen = 1 << start
        while chosen.bit_count() < count:
            rest = [unit for unit in units if not chosen >> unit & 1]
            chosen |= 1 << min(rest, key=lambda unit: (universe.neighbours(1 << unit) & chosen).bit_count())
        found.append(chosen)
    return min(
        found, key=lambda chosen: sum((universe.successors[unit] & chosen).bit_count() for unit in members(chosen))
    )


def choices(chosen: UnitSet, pool: UnitSet) -> tuple[Occurrence, ...]:
    """All selections of as many units of the pool, the given one first; only that one if there are too many."""
    first = tuple(members(chosen))
    if comb(pool.bit_count(), len(first)) > _FEW_CHOICES:
        return (first,)
    return (first, *(choice for choice in combinations(members(pool), len(first)) if choice != first))


def _matches(universe: Universe, part: Occurrence) -> list[Occurrence]:
    """All embeddings of a connected part, as units aligned with `part`, in order of their first unit."""
    visit = [part[0]]
    while len(visit) < len(part):
        reach = universe.neighbours(of(visit)) & of(part)
        visit.append(lowest(reach))
    found: list[Occurrence] = []

    def extend(placed: dict[int, int]) -> None:
        if len(found) >= MOST_OCCURRENCES * 4:
            return
        if len(placed) == len(visit):
            found.append(tuple(placed[role] for role in part))
            return
        role = visit[len(placed)]
        candidates = universe.variant_members[universe.variant[role]]
        for before, unit in placed.items():
            if universe.successors[before] >> role & 1:
                candidates &= universe.successors[unit]
            if universe.predecessors[before] >> role & 1:
                candidates &= universe.predecessors[unit]
        used = set(placed.values())
        for unit in members(candidates):
            if unit not in used:
                extend({**placed, role: unit})

    extend({})
    return found


def first_wrong(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The wrong units of a probe that no other wrong unit feeds, directly or through units the log does not list.

    A log that compares tensors with their reference values names one culprit and perhaps a hundred innocent ops: what
    computes wrong values makes nearly everything behind it wrong. Only the first wrong ones are suspects.

    An unlisted unit counts as wrong if something wrong feeds it, and as right otherwise: it propagates wrong numbers
    and never starts them. Units listed as right, and the inputs of the probe, propagate nothing.
    """
    unknown = probe & ~wrong & ~right
    fed = 0
    layer = seen = wrong
    while layer:
        after = 0
        for unit in members(layer):
            after |= universe.successors[unit]
        fed |= after
        layer = after & unknown & ~seen
        seen |= layer
    return wrong & ~fed


def unlisted_before(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The unlisted units upstream of where wrong numbers begin; one of them may have started them."""
    unknown = probe & ~wrong & ~right
    found = 0
    layer = first_wrong(universe, probe, wrong, right)
    while layer:
        before = 0
        for unit in members(layer):
            before |= universe.predecessors[unit]
        layer = before & unknown & ~found
        found |= layer
    return found
