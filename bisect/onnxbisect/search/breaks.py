"""Which units to leave out so that no culprit is left: the certificate compiles the model without them."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from math import prod

from onnxbisect.search.context import FEW_UNITS
from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, sort_key, union
from onnxbisect.universe import Universe, remembered

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
    patterns: tuple[tuple[tuple[int, ...], ...], ...],
    pools: tuple[tuple[UnitSet, int], ...],
) -> tuple[list[UnitSet], bool, bool]:
    singles = of(occurrence[0] for occurrences in patterns for occurrence in occurrences if len(occurrence) == 1)
    edges = [of(occurrence) for occurrences in patterns for occurrence in occurrences]
    edges = [edge for edge in dict.fromkeys(edges) if not edge & singles]
    few = len(universe) <= FEW_UNITS
    ways, cut_short = _every(edges, MOST if few else _MULTIPLIED), False
    exhaustive = ways is not None and not pools
    if ways is None:
        ways, cut_short = _covering(universe, patterns, edges, _near_pairs(universe, edges))
    elif len(ways) > EXHAUSTIVE and not few:
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
    near = universe.everything if len(universe) <= FEW_UNITS else universe.ball(others, _NEAR)
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
    patterns: Sequence[Sequence[Sequence[int]]],
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
