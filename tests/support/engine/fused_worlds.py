"""Models of 30 to 200 units for a compiler that fuses a pattern: too large for brute force, but the truth is known.

The compiler refuses some of the pattern's ops wherever the pattern is not complete. So a unit of these ops is to blame
if it stands in no complete pattern of the whole model, and fine otherwise.
"""

import random
from dataclasses import dataclass

from onnxbisect.unitset import UnitSet, is_subset, lowest, members, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints
from support.engine.rule_graphs import Edge, Pattern, connected_units
from support.engine.worlds import universe

_MOST_DRAWS = 200
#: Steps that an edge beside the chain goes back.
_REACH = 6


@dataclass(frozen=True, kw_only=True)
class FusedWorld:
    """`to_blame` are refused in every part of the model; `fused` only where their pattern is cut."""

    seed: int
    universe: Universe
    pattern: Pattern
    refused_ops: UnitSet
    to_blame: UnitSet
    fused: UnitSet
    places: tuple[UnitSet, ...]

    def refused(self, units: UnitSet) -> bool:
        """Whether the compiler refuses a part."""
        return bool(self._offenders(units))

    def first_offender(self, units: UnitSet) -> Hints:
        """The log of a compiler that names the first unit that it refuses."""
        first = lowest(self._offenders(units))
        return Hints(ops=(self.universe.op[first],), nodes=self.universe.names[first])

    def _offenders(self, units: UnitSet) -> UnitSet:
        complete = union(place for place in self.places if is_subset(place, units))
        return units & self.refused_ops & ~complete | units & self.to_blame & ~self.refused_ops

    def __str__(self) -> str:
        return f"world {self.seed}: {len(self.universe)} units, {self.pattern}, to blame {list(members(self.to_blame))}"


def fused_world(seed: int) -> FusedWorld:
    """A chain with shortcuts, or as many equal blocks in a row; half of them also have an op that is always refused."""
    chance = random.Random(f"fused/{seed}")
    model = _model(chance)
    for _ in range(_MOST_DRAWS):
        units = list(members(connected_units(chance, model, chance.choice([2, 2, 3, 3, 4]))))
        pattern = Pattern.at(model, units)
        roles = chance.sample(range(len(units)), chance.choice([1, 1, 1, 2, min(3, len(units))]))
        ops = union(model.variant_members[model.variant[units[role]]] for role in roles)
        places = tuple(pattern.occurrences(model))
        fused = union(places) & ops
        always = model.variant_members[chance.randrange(len(model.variant_members))] if chance.random() < 0.5 else 0
        if always & union(places):
            always = 0
        if ops & ~fused:
            return FusedWorld(
                seed=seed,
                universe=model,
                pattern=pattern,
                refused_ops=ops,
                to_blame=ops & ~fused | always & ~ops,
                fused=fused,
                places=places,
            )
    raise RuntimeError(f"no fused world of seed {seed}")


def _model(chance: random.Random) -> Universe:
    blocks = chance.choice([1, 1, 1, 4, 8, 12])
    length = chance.randint(30, 150) if blocks == 1 else chance.randint(8, 16)
    ops = chance.randint(8, 20) if blocks == 1 else chance.randint(5, length)
    variants = [*range(ops), *(chance.randrange(ops) for _ in range(length - ops))]
    chance.shuffle(variants)
    edges: list[Edge] = [(unit - 1, unit) for unit in range(1, length)]
    edges += [
        (chance.randrange(max(0, unit - _REACH), unit), unit) for unit in range(2, length) if chance.random() < 0.3
    ]
    starts = range(0, blocks * length, length)
    repeated = {(start + one, start + other) for start in starts for one, other in edges}
    repeated |= {(start - 1, start) for start in starts[1:]}
    numbers: dict[int, int] = {}  # in the order of first use, as intake numbers them
    return universe([numbers.setdefault(variant, len(numbers)) for variant in variants] * blocks, sorted(repeated))
