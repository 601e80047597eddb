"""Random small graphs, and patterns of ops, shapes and edges that occur in them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxbisect.unitset import UnitSet, is_subset, members, of, size
from onnxbisect.universe import Universe
from support.engine.worlds import universe

Edge = tuple[int, int]


def graph(chance: random.Random, count: int) -> Universe:
    """A chain or a graph with branches; in a quarter of the cases made of equal blocks."""
    several = chance.randint(max(1, count // 4), count)
    variants = [chance.randrange(several) for _ in range(count)]
    edges = _edges(chance, count)
    if count >= 6 and chance.random() < 0.25:
        length = chance.randint(2, count // 2)
        variants = [variants[unit % length] for unit in range(count)]
        edges = _repeated(_edges(chance, length), length, count)
    shapes = chance.choices(["each its own", "one", "one or the other"], [1, 4, 3])[0]
    match shapes:
        case "each its own":
            solos = list(range(count))
        case "one":
            solos = variants
        case _:
            solos = [chance.randrange(2) for _ in range(count)]
    # Numbered in the order of first use, as intake numbers them; units of two variants are never alike alone.
    variant_numbers: dict[int, int] = {}
    solo_numbers: dict[tuple[int, int], int] = {}
    numbered = [variant_numbers.setdefault(variant, len(variant_numbers)) for variant in variants]
    alone = [solo_numbers.setdefault(solo, len(solo_numbers)) for solo in zip(numbered, solos, strict=True)]
    return universe(numbered, edges, alone)


def layered_graph(chance: random.Random) -> Universe:
    """Three layers or more of the same ops, each with weights of its own."""
    length = chance.choice([2, 3, 4])
    count = length * chance.randint(3, 12 // length)
    edges = _repeated(_edges(chance, length), length, count)
    return universe([unit % length for unit in range(count)], edges, list(range(count)))


def _edges(chance: random.Random, count: int) -> list[Edge]:
    style = chance.choices(["chain", "branches", "islands"], [25, 55, 20])[0]
    if style == "chain":
        return [(unit - 1, unit) for unit in range(1, count)]
    edges = []
    for unit in range(1, count):
        inputs = chance.choice([0, 1, 1, 1, 2, 2, 3] if style == "branches" else [0, 0, 1, 1, 2])
        reachable = range(max(0, unit - chance.choice([1, 2, 3, 14])), unit)
        edges += [(producer, unit) for producer in chance.sample(reachable, min(inputs, len(reachable)))]
    return edges


def _repeated(block: Sequence[Edge], length: int, count: int) -> list[Edge]:
    """Equal blocks one after the other; the last one may end early."""
    edges = []
    for start in range(0, count, length):
        edges += [(start + one, start + other) for one, other in block if start + other < count]
        if start:
            edges.append((start - 1, start))
    return edges


def some_units(chance: random.Random, model: Universe, count: int) -> UnitSet:
    """So many units, mostly connected ones."""
    count = min(count, len(model))
    if chance.random() >= 0.6:
        return of(chance.sample(range(len(model)), count))
    return connected_units(chance, model, count)


def connected_units(chance: random.Random, model: Universe, count: int) -> UnitSet:
    """So many connected units, with others where too few are connected."""
    count = min(count, len(model))
    units = 1 << chance.randrange(len(model))
    while size(units) < count:
        around = 0
        for unit in members(units):
            around |= model.predecessors[unit] | model.successors[unit]
        units |= 1 << chance.choice(list(members(around & ~units or model.everything & ~units)))
    return units


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Roles, each a variant and perhaps a shape, and the edges between them: (producing role, consuming role)."""

    roles: tuple[tuple[int, int | None], ...]
    edges: frozenset[Edge]

    @classmethod
    def at(cls, model: Universe, units: Sequence[int], solos: Sequence[int | None] | None = None) -> "Pattern":
        """The pattern of these units: their variants, some of their shapes, and all edges between them."""
        places = range(len(units))
        return cls(
            roles=tuple(zip([model.variant[unit] for unit in units], solos or [None] * len(units), strict=True)),
            edges=frozenset((a, b) for a in places for b in places if model.successors[units[a]] >> units[b] & 1),
        )

    def occurrences(self, model: Universe) -> set[UnitSet]:
        """Every set of units that has these roles and at least these edges."""
        candidates = [
            [unit for unit in members(model.variant_members[variant]) if solo is None or model.solo[unit] == solo]
            for variant, solo in self.roles
        ]
        return {of(chosen) for chosen in self._assignments(model, candidates, ())}

    def _assignments(
        self, model: Universe, candidates: Sequence[Sequence[int]], chosen: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(candidates):
            yield chosen
            return
        for unit in candidates[len(chosen)]:
            grown = (*chosen, unit)
            if unit not in chosen and self._edges_agree(model, grown):
                yield from self._assignments(model, candidates, grown)

    def _edges_agree(self, model: Universe, chosen: tuple[int, ...]) -> bool:
        """Whether the last unit chosen has its edges to those before it."""
        last = len(chosen) - 1
        return all(is_subset(1 << chosen[b], model.successors[chosen[a]]) for a, b in self.edges if max(a, b) == last)

    def __str__(self) -> str:
        return f"{[f'V{variant}' for variant, _ in self.roles]} with edges {sorted(self.edges)}"


def plant(chance: random.Random, model: Universe, count: int, sizes: Sequence[int]) -> list[Pattern]:
    """Patterns taken from the model: with or without edges, some of them at certain shapes only."""
    patterns = []
    for _ in range(count):
        units = list(members(some_units(chance, model, chance.choice(sizes))))
        by_shape = chance.random() < 0.35
        solos = [model.solo[unit] if by_shape and chance.random() < 0.8 else None for unit in units]
        pattern = Pattern.at(model, units, solos)
        patterns.append(pattern if chance.random() < 0.7 else Pattern(roles=pattern.roles, edges=frozenset()))
    return patterns
