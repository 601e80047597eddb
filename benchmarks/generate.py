"""Graphs without ONNX, and what a simulated compiler refuses in them: any size, known truth, made again from a seed.

A graph is a chain with shortcuts, as models are: each unit feeds the next one, about a third also take what one of
the twenty units before them made. Units ask one of `m` support questions (variants).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe

#: How far back a shortcut reaches, and how many units have one.
_REACH = 20
_SHORTCUTS = 0.3
_MOST_DRAWS = 5_000

Edges = list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Generated:
    """A graph and the truth about it: every minimal failing set, each occurrence by itself.

    Where more than `most` of the `counted` units are refused, these sets are too many to list, and `truth` is empty.
    """

    universe: Universe
    truth: frozenset[UnitSet]
    counted: UnitSet = 0
    most: int = 0

    @cached_property
    def _singles(self) -> UnitSet:
        return of(lowest(units) for units in self.truth if size(units) == 1)

    @cached_property
    def _groups(self) -> tuple[UnitSet, ...]:
        return tuple(sorted(units for units in self.truth if size(units) > 1))

    def offenders(self, units: UnitSet) -> list[UnitSet]:
        """The minimal failing sets inside a probe, in the order of the graph; of too many units all as one."""
        inside = [1 << unit for unit in members(units & self._singles)]
        inside += [group for group in self._groups if is_subset(group, units)]
        if size(units & self.counted) > self.most:
            inside.append(units & self.counted)
        return sorted(inside, key=lowest)

    def refused(self, units: UnitSet) -> bool:
        """Whether the simulated compiler fails on a probe."""
        if size(units & self.counted) > self.most:
            return True
        return bool(units & self._singles) or any(is_subset(group, units) for group in self._groups)


def singles(n: int, m: int, k: int, seed: int, *, skewed: bool = False) -> Generated:
    """`k` of `m` variants are refused wherever they stand, each of the `m` being as likely to be one.

    `skewed`: the r-th commonest variant occurs in proportion to 1/r, as in real models; else all are as common.
    """
    chance = random.Random(f"singles/{n}/{m}/{k}/{skewed}/{seed}")
    variants = _variants(chance, n, m, skewed=skewed)
    return _refusing(_universe(variants, _chain(chance, n)), chance.sample(range(m), k))


def branches(n: int, m: int, k: int, seed: int, wide: int = 8) -> Generated:
    """As `singles`, in `wide` chains side by side that start from one unit and end in one."""
    chance = random.Random(f"branches/{n}/{m}/{k}/{wide}/{seed}")
    each = (n - 2) // wide
    edges: Edges = []
    for first in range(1, 1 + wide * each, each):
        edges += [(0, first), *[(unit, unit + 1) for unit in range(first, first + each - 1)], (first + each - 1, n - 1)]
    edges += [(unit, n - 1) for unit in range(1 + wide * each, n - 1)]
    return _refusing(_universe(_variants(chance, n, m), edges), chance.sample(range(m), k))


def adjacent_pair(n: int, m: int, seed: int) -> Generated:
    """Fails where a unit of one variant feeds a unit of another; both also stand elsewhere and are fine there."""
    chance = random.Random(f"adjacent/{n}/{m}/{seed}")
    variants = _variants(chance, n, m)
    edges = _chain(chance, n)
    before, after = chance.choice([edge for edge in edges if variants[edge[0]] != variants[edge[1]]])
    pattern = variants[before], variants[after]
    truth = {of(edge) for edge in edges if (variants[edge[0]], variants[edge[1]]) == pattern}
    return Generated(universe=_universe(variants, edges), truth=frozenset(truth))


def far_pairs(n: int, m: int, k: int, seed: int, copies: int = 1) -> Generated:
    """Fails where both ops of one of `k` pairs are present, at least half of the graph apart.

    Each of these ops occurs so many times, and every combination is an occurrence.
    """
    chance = random.Random(f"far/{n}/{m}/{k}/{copies}/{seed}")
    common = m - 2 * k
    variants = _variants(chance, n, common)
    truth: set[UnitSet] = set()
    heads, tails = chance.sample(range(n // 4), k * copies), chance.sample(range(3 * n // 4, n), k * copies)
    for pair in range(k):
        ones, others = heads[pair::k], tails[pair::k]
        for variant, units in ((common + 2 * pair, ones), (common + 2 * pair + 1, others)):
            for unit in units:
                variants[unit] = variant
        truth |= {of(occurrence) for occurrence in product(ones, others)}
    return Generated(universe=_universe(variants, _chain(chance, n)), truth=frozenset(truth))


def pattern(n: int, m: int, p: int, seed: int) -> Generated:
    """`p` connected units are refused together, once; the op of each also stands elsewhere and is fine there."""
    chance = random.Random(f"pattern/{n}/{m}/{p}/{seed}")
    while True:
        universe = _universe(_variants(chance, n, m), _chain(chance, n))
        if found := _refusing_a_pattern(chance, universe, range(n), p, times=1):
            return found


def pattern_in_layers(layers: int, length: int, m: int, p: int, seed: int) -> Generated:
    """The same in each of so many equal layers of `length` units."""
    chance = random.Random(f"layers/{layers}/{length}/{m}/{p}/{seed}")
    while True:
        universe = _layers(layers, _variants(chance, length, m), _chain(chance, length))
        if found := _refusing_a_pattern(chance, universe, range(length), p, times=layers):
            return found


def at_most(most: int, layers: int, length: int, seed: int) -> Generated:
    """Each layer has every op once, and more than `most` of one op are refused."""
    chance = random.Random(f"count/{most}/{layers}/{length}/{seed}")
    universe = _layers(layers, _variants(chance, length, length), _chain(chance, length))
    counted = chance.choice(universe.variant_members)
    return Generated(universe=universe, truth=frozenset(), counted=counted, most=most)


def _layers(layers: int, variants: Sequence[int], edges: Edges) -> Universe:
    """Equal layers, each feeding the next one."""
    length = len(variants)
    starts = range(0, layers * length, length)
    inside = [(start + one, start + other) for start in starts for one, other in edges]
    return _universe(list(variants) * layers, [*inside, *[(start - 1, start) for start in starts[1:]]])


def _refusing_a_pattern(
    chance: random.Random, universe: Universe, within: Sequence[int], p: int, times: int
) -> Generated | None:
    """A connected pattern from `within` that occurs so many times; other units have the ops that it has.

    None where none is drawn in `_MOST_DRAWS`: some graphs have no such pattern.
    """
    for _ in range(_MOST_DRAWS):
        units = [chance.choice(within)]
        while len(units) < p:
            around = {other for unit in units for other in _beside(universe, unit) if other in within}
            units.append(chance.choice(sorted(around - set(units))))
        variants = [universe.variant[unit] for unit in units]
        if any(size(universe.variant_members[it]) <= times * variants.count(it) for it in variants):
            continue  # before the occurrences are looked for, which takes long
        truth = frozenset(_occurrences(universe, units))
        if len(truth) == times:
            return Generated(universe=universe, truth=truth)
    return None


def _occurrences(universe: Universe, units: Sequence[int]) -> Iterator[UnitSet]:
    """Every set of units with the variants of these and at least their edges; each but the first touches one before."""

    def edges(chosen: Sequence[int]) -> set[tuple[int, int, bool]]:
        """Those of the last unit: with which earlier one, and in which direction."""
        last = len(chosen) - 1
        return {
            (role, last, forward)
            for role in range(last)
            for forward in (True, False)
            if universe.successors[chosen[role if forward else last]] >> chosen[last if forward else role] & 1
        }

    wanted = [edges(units[: role + 1]) for role in range(len(units))]

    def grown(chosen: tuple[int, ...]) -> Iterator[UnitSet]:
        role = len(chosen)
        if role == len(units):
            yield of(chosen)
            return
        alike = universe.variant_members[universe.variant[units[role]]]
        near = {other for unit in chosen for other in _beside(universe, unit)} if chosen else members(alike)
        for unit in sorted(near):
            if alike >> unit & 1 and unit not in chosen and wanted[role] <= edges((*chosen, unit)):
                yield from grown((*chosen, unit))

    yield from grown(())


def _beside(universe: Universe, unit: int) -> Iterator[int]:
    return members(universe.predecessors[unit] | universe.successors[unit])


def _refusing(universe: Universe, bad: Iterable[int]) -> Generated:
    truth = {1 << unit for variant in bad for unit in members(universe.variant_members[variant])}
    return Generated(universe=universe, truth=frozenset(truth))


def _variants(chance: random.Random, n: int, m: int, *, skewed: bool = False) -> list[int]:
    """Each variant at least once, the other units at random."""
    weights = [1 / (rank + 1) if skewed else 1.0 for rank in range(m)]
    variants = [*range(m), *chance.choices(range(m), weights, k=n - m)]
    chance.shuffle(variants)
    return variants


def _chain(chance: random.Random, n: int) -> Edges:
    edges = {(unit, unit + 1) for unit in range(n - 1)}
    for unit in range(2, n):
        if chance.random() < _SHORTCUTS:
            edges.add((chance.randrange(max(0, unit - _REACH), unit), unit))
    return sorted(edges)


def _universe(variants: Sequence[int], edges: Edges) -> Universe:
    numbers: dict[int, int] = {}  # in the order of first use, as intake numbers them
    numbered = tuple(numbers.setdefault(variant, len(numbers)) for variant in variants)
    after: list[list[int]] = [[] for _ in variants]
    for producer, consumer in edges:
        after[producer].append(consumer)
    return Universe(
        variant=numbered,
        solo=numbered,
        op=tuple(f"Op{variant}" for variant in numbered),
        names=tuple((f"n{unit}",) for unit in range(len(variants))),
        tensors=tuple((f"t{unit}",) for unit in range(len(variants))),
        successors=tuple(of(consumers) for consumers in after),
    )
