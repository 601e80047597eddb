"""Graphs without ONNX, and what a simulated compiler refuses in them: any size, known truth, made again from a seed.

A graph is a chain with shortcuts, as models are: each unit feeds the next one, about a third also take what one of
the twenty units before them made. Units ask one of `m` support questions (variants).
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe

#: How far back a shortcut reaches, and how many units have one.
_REACH = 20
_SHORTCUTS = 0.3

Edges = list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Generated:
    """A graph and the truth about it: every minimal failing set, each occurrence by itself."""

    universe: Universe
    truth: frozenset[UnitSet]

    @cached_property
    def _singles(self) -> UnitSet:
        return of(lowest(units) for units in self.truth if size(units) == 1)

    @cached_property
    def _groups(self) -> tuple[UnitSet, ...]:
        return tuple(sorted(units for units in self.truth if size(units) > 1))

    def offenders(self, units: UnitSet) -> list[UnitSet]:
        """The minimal failing sets inside a probe, in the order of the graph."""
        inside = [1 << unit for unit in members(units & self._singles)]
        inside += [group for group in self._groups if is_subset(group, units)]
        return sorted(inside, key=lowest)

    def refused(self, units: UnitSet) -> bool:
        """Whether the simulated compiler fails on a probe."""
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


def far_pair(n: int, m: int, seed: int) -> Generated:
    """Fails where two units are both present, at least half of the graph apart; each variant occurs once."""
    chance = random.Random(f"far/{n}/{m}/{seed}")
    one, other = chance.randrange(n // 4), chance.randrange(3 * n // 4, n)
    variants = _variants(chance, n, m - 2)
    variants[one], variants[other] = m - 2, m - 1
    return Generated(universe=_universe(variants, _chain(chance, n)), truth=frozenset({of((one, other))}))


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
