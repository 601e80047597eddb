"""The structure of culprits: where else in the model a pattern occurs, which unit represents its variant, and what to
leave out so that no culprit is left: the certificate compiles the model without it.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, islice, product
from math import comb, prod

from onnxbisect.search.state import Occurrence, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, sort_key, union
from onnxbisect.universe import Universe, remembered

#: Most occurrences of one culprit; the parts of a disconnected pattern multiply.
MOST_OCCURRENCES = 1024

#: Occurrences of an interaction of units far from each other that are all asked, however many of their units are shown.
_FEW_PLACES = 16
#: Most choices of units of an op that are listed one by one.
_FEW_CHOICES = 64
#: Units from which the greedy choice starts.
_STARTS = 8


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
    parts = [tuple(members(part)) for part in universe.components(culprit)]
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
    if len(places) <= _FEW_PLACES or len(universe.components(of(places[0]))) == 1:
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


#: Up to so many minimal ways to break the culprits, all are tried …
EXHAUSTIVE = 8
#: … and up to so many, unless two thirds as many keep any two units of different occurrences together.
_MULTIPLIED = 16
#: Most ways that are tried.
MOST = 48
#: Most ways that come of multiplying the ways to break interactions by those to thin each op of which only so many are
#: taken; ten such ops have thousands.
_MOST_MULTIPLIED = 4 * MOST
#: Any two units within so many steps of each other are kept together in one way.
_NEAR = 2


def ways_to_break(universe: Universe, suspects: Iterable[Suspect]) -> tuple[list[UnitSet], bool, bool]:
    """Sets of units without which no culprit is left: (sets, exhaustive, cut short).

    Up to `EXHAUSTIVE` minimal sets are all returned (Berge's algorithm for minimal hitting sets), up to `MOST` in a
    model of few units; and up to `_MULTIPLIED`, if not far fewer keep any two units of different occurrences together,
    since a further culprit seldom needs three of them. Beyond that, the ways to break occurrences that share no unit
    are not multiplied: each way to break one such group is in one of the sets, if there are at most `MOST`; else every
    role of every pattern is left out everywhere in one of them. Any two adjacent units of different occurrences are
    both kept in one of them; and for any two variants, some two of their units are. For a target that accepts only so
    many units of an op, one set keeps the first units, one keeps the last, and each unit near another culprit's is kept
    in one.
    """
    patterns = tuple(suspect.occurrences for suspect in suspects if not suspect.capacity and not suspect.pool)
    pools = tuple((suspect.pool, suspect.allowed) for suspect in suspects if suspect.pool)
    return _ways(universe, patterns, pools)


@remembered(64)
def _ways(
    universe: Universe,
    patterns: tuple[tuple[Occurrence, ...], ...],
    pools: tuple[tuple[UnitSet, int], ...],
) -> tuple[list[UnitSet], bool, bool]:
    singles = of(occurrence[0] for occurrences in patterns for occurrence in occurrences if len(occurrence) == 1)
    edges = [of(occurrence) for occurrences in patterns for occurrence in occurrences]
    edges = [edge for edge in dict.fromkeys(edges) if not edge & singles]
    ways, cut_short = _every(edges, MOST if universe.is_small else _MULTIPLIED), False
    exhaustive = ways is not None and not pools
    if ways is None:
        ways, cut_short = _covering(universe, patterns, edges, _near_pairs(universe, edges))
    elif len(ways) > EXHAUSTIVE and not universe.is_small:
        fewer, _ = _covering(universe, patterns, edges, list(combinations(members(union(edges)), 2)))
        if 3 * len(fewer) <= 2 * len(ways):
            ways, exhaustive = fewer, False
    room = max(2, MOST // len(ways))
    thinned = [_thinned(universe, pool & ~singles, allowed, union(edges)) for pool, allowed in pools]
    cut_short |= any(len(thin) > room for thin in thinned)
    choices = [ways, *(thin[:room] for thin in thinned)]
    if prod(map(len, choices)) <= _MOST_MULTIPLIED:
        together = list(map(union, product(*choices)))
    else:
        together, cut_short = _side_by_side(choices), True
    found = {singles | way for way in together}
    return sorted(found, key=sort_key), exhaustive, cut_short


def _side_by_side(choices: Sequence[Sequence[UnitSet]]) -> list[UnitSet]:
    """Unions of one set of each choice, such that each set is in one of them."""
    return [union(sets[number % len(sets)] for sets in choices) for number in range(max(map(len, choices)))]


def _thinned(universe: Universe, pool: UnitSet, allowed: int, others: UnitSet) -> list[UnitSet]:
    """What to leave out of a pool: all but the first units, all but the last, and all but those near `others`.

    In a model of few units all of the pool are near.
    """
    units = list(members(pool))
    if len(units) <= allowed:
        return [0]
    kept = [of(units[:allowed]), of(units[len(units) - allowed :])]
    near = universe.everything if universe.is_small else universe.ball(others, _NEAR)
    each = list(members(near & pool & ~union(kept)))
    kept += [of(each[start : start + allowed]) for start in range(0, len(each), allowed)]
    return [pool & ~some for some in kept]


def _every(edges: Sequence[UnitSet], most: int) -> list[UnitSet] | None:
    sets: set[UnitSet] = {0}
    for edge in edges:
        grown: set[UnitSet] = set()
        for done in sets:
            grown.update([done] if done & edge else [done | 1 << unit for unit in members(edge)])
        sets = {one for one in grown if not any(other != one and is_subset(other, one) for other in grown)}
        if len(sets) > most:
            return None
    return list(sets)


def _covering(
    universe: Universe,
    patterns: Sequence[Sequence[Occurrence]],
    edges: Sequence[UnitSet],
    together: Sequence[tuple[int, int]],
) -> tuple[list[UnitSet], bool]:
    """Ways such that each unit is left out in one, and that each of these pairs is kept in one if it holds no culprit;
    whether that would take more than `MOST`.
    """
    several = [occurrences for occurrences in patterns if len(occurrences[0]) > 1]
    kept_sets = _Kept(edges)
    each = [_every(group, MOST) for group in _groups(edges)]
    few = [sorted(ways, key=sort_key) for ways in each if ways]
    for broken in _side_by_side(few) if few else ():
        kept_sets.keep(kept_sets.units & ~broken)
    for role in range(max(len(occurrences[0]) for occurrences in several) if None in each else 0):
        broken = of(occurrence[role % len(occurrence)] for occurrences in several for occurrence in occurrences)
        kept_sets.keep(kept_sets.units & ~broken)
    while wanted := kept_sets.apart(together):
        if len(kept_sets.found) >= MOST:
            return kept_sets.broken, True
        kept_sets.keep_pairs(wanted)
    while wanted := kept_sets.variants_apart(universe):
        if len(kept_sets.found) >= MOST:
            return kept_sets.broken, True
        kept_sets.keep_pairs(wanted)
    return kept_sets.broken, False


def _groups(edges: Sequence[UnitSet]) -> list[list[UnitSet]]:
    """The occurrences in groups that share no unit with each other."""
    groups: dict[UnitSet, list[UnitSet]] = {}
    for edge in edges:
        shared = [units for units in groups if units & edge]
        groups[edge | union(shared)] = [edge, *(one for units in shared for one in groups.pop(units))]
    return list(groups.values())


def _near_pairs(universe: Universe, edges: Sequence[UnitSet]) -> list[tuple[int, int]]:
    units = union(edges)
    return [
        (one, other)
        for one in members(units)
        for other in members(universe.ball(1 << one, _NEAR) & units)
        if other > one
    ]


class _Kept:
    """Maximal sets of units that contain no occurrence."""

    def __init__(self, edges: Sequence[UnitSet]) -> None:
        self.units = union(edges)
        self._edges_of: dict[int, list[UnitSet]] = {unit: [] for unit in members(self.units)}
        for edge in edges:
            for unit in members(edge):
                self._edges_of[unit].append(edge)
        self.found: list[UnitSet] = []

    @property
    def broken(self) -> list[UnitSet]:
        """The units that each set leaves out."""
        return [self.units & ~kept for kept in self.found]

    def keep(self, kept: UnitSet) -> None:
        """Add a set without an occurrence, extended until no further unit fits."""
        for unit in members(self.units & ~kept):
            if not any(is_subset(edge, kept | 1 << unit) for edge in self._edges_of[unit]):
                kept |= 1 << unit
        if kept not in self.found:
            self.found.append(kept)

    def keep_pairs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Add a set that keeps the first pair, and further pairs in order as long as no occurrence is complete."""
        kept = 0
        for one, other in pairs:
            both = 1 << one | 1 << other
            if not any(is_subset(edge, kept | both) for unit in (one, other) for edge in self._edges_of[unit]):
                kept |= both
        self.keep(kept)

    def apart(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those pairs that could be kept, but that no set keeps."""
        return [pair for pair in pairs if self._apart(*pair)]

    def variants_apart(self, universe: Universe) -> list[tuple[int, int]]:
        """One pair for any two variants of which no set keeps units of different occurrences."""
        places: dict[int, list[int]] = {}
        for unit in members(self.units):
            places.setdefault(universe.variant[unit], []).append(unit)
        found = []
        for first, ones in places.items():
            for second, others in places.items():
                if first <= second and (pair := self._representative(ones, others)):
                    found.append(pair)
        return found

    def _representative(self, ones: Sequence[int], others: Sequence[int]) -> tuple[int, int] | None:
        together = of(ones), of(others)
        if any(
            kept & together[0] and kept & together[1] and size(kept & (together[0] | together[1])) > 1
            for kept in self.found
        ):
            return None
        pairs = ((one, other) for one in ones[:4] for other in others[:4] if one != other)
        return next((pair for pair in pairs if self._apart(*pair)), None)

    def _apart(self, one: int, other: int) -> bool:
        both = 1 << one | 1 << other
        if any(is_subset(both, kept) for kept in self.found):
            return False
        return both not in self._edges_of[one] and not any(is_subset(edge, both) for edge in self._edges_of[one])
