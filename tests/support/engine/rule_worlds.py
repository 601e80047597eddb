"""Small random models with a hidden rule of each class of compiler behaviour, made again from a seed.

A rule looks at ops, shapes and dataflow, as compilers do, and is kept as the family of all parts that fail.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, reduce
from operator import or_

from onnxbisect.unitset import UnitSet, members, of, size
from onnxbisect.universe import Universe
from support.engine import compiler_rules
from support.engine.families import Family, every, holding, holding_all, holding_any, holding_more, minimal_robust
from support.engine.rule_graphs import Pattern, connected_units, graph, layered_graph, plant, some_units


class Behaviour(StrEnum):
    """How a compiler fails, besides on the planted patterns that every class has some of."""

    #: Fails on the planted patterns of one to four units, and on nothing else.
    MONOTONE = "monotone"
    #: Fuses a pattern of two to four connected units, and refuses some of its ops elsewhere.
    FUSION = "fusion"
    #: As fusion, of up to four units that need not be connected.
    SCATTERED = "scattered"
    #: Refuses an op unless another one is near it, or anywhere in the file.
    EXCUSE = "excuse"
    #: Refuses an op, or a pair of ops, next to where the file was cut.
    CUT = "cut"
    #: Refuses two ops unless they are neighbours.
    WEAK = "weak"
    #: Refuses an op unless another one is in the file.
    UNLESS = "unless"
    #: Refuses a file that has one of two ops and not the other.
    XOR = "xor"
    #: Takes so many of an op, or so many nodes, and no more.
    COUNT = "count"
    #: Fails on the planted patterns, and now and then answers wrongly.
    FLAKY = "flaky"
    #: Judges a part as a whole, by rules of `compiler_rules`.
    SHAPES = "shapes"
    MEMORY = "memory"
    LAYOUT = "layout"
    GREEDY_FUSION = "greedy fusion"
    FOLDING = "folding"
    ERRORS = "errors"
    BOUNDARY = "boundary"
    PIECES = "pieces"
    TYPES = "types"
    ORDER = "order"
    DEPTH = "depth"
    FAN_OUT = "fan-out"
    PARTITIONS = "partitions"
    WEIGHTS = "weights"
    LAYERS = "layers"
    #: Refuses many of the model's ops.
    MANY = "many"
    #: Fails on the planted patterns, and gives no answer to a part of more than so many units.
    TIME_OUTS = "time-outs"
    #: Fails on the planted patterns, and for some calls after each other on whatever it is given.
    WINDOW = "window"


#: Those that fail on quantities.
_QUANTITIES = (
    Behaviour.COUNT,
    Behaviour.MEMORY,
    Behaviour.BOUNDARY,
    Behaviour.PIECES,
    Behaviour.PARTITIONS,
    Behaviour.WEIGHTS,
)


#: What is refused, in words, and for each unit the family of parts in which it is.
Drawn = tuple[str, Mapping[int, Family]] | None

#: More occurrences of planted patterns than this make too many ways to break them for a model of 12 units.
_MOST_PLANTED = 16
_MOST_DRAWS = 2000


@dataclass(frozen=True, kw_only=True)
class RuleWorld:
    """A model and the family of its parts that the compiler refuses.

    `planted` are the occurrences of the planted patterns; `words` says what else is refused, and `refusing` for each
    unit in which sets it is, which is what a log that names an offender names. `by_quantity` are the
    sets that fail because they hold too much, whatever it is; `unanswered` get no answer. A wrong answer
    has the probability `lies`; where `one_sided`, every wrong answer is a failure. The calls of the numbers `down`
    fail, whatever they ask.
    """

    behaviour: Behaviour
    seed: int
    universe: Universe
    failing: Family
    planted: tuple[UnitSet, ...]
    words: str
    refusing: Mapping[int, Family] = field(default_factory=dict)
    by_quantity: Family = 0
    unanswered: Family = 0
    lies: float = 0.0
    one_sided: bool = False
    down: range = range(0)

    def refused(self, units: UnitSet) -> bool:
        """Whether the compiler refuses a part, apart from lies."""
        return bool(self.failing >> units & 1)

    @cached_property
    def truth(self) -> tuple[UnitSet, ...]:
        """The minimal sets of which every superset fails."""
        return minimal_robust(len(self.universe), self.failing)

    def passes_around(self, units: UnitSet) -> bool:
        """Whether a part passes that holds these units."""
        return bool(holding_all(len(self.universe), units) & ~self.failing)

    def __str__(self) -> str:
        it = self.universe
        edges = [(unit, after) for unit in range(len(it)) for after in members(it.successors[unit])]
        planted = [tuple(members(units)) for units in self.planted]
        rule = f"refuses {planted}{' and ' * bool(self.words)}{self.words}"
        return f"{self.behaviour} {self.seed}: {rule}; variants {it.variant}, solos {it.solo}, edges {edges}"


def world(behaviour: Behaviour, seed: int) -> RuleWorld:
    """A model whose whole is refused; each seed makes another one."""
    chance = random.Random(f"{behaviour}/{seed}")
    for _ in range(_MOST_DRAWS):
        made = _draw(chance, behaviour, seed)
        if made is not None and made.refused(made.universe.everything):
            return made
    raise RuntimeError(f"no world of class {behaviour} in {_MOST_DRAWS} draws from seed {seed}")


def _draw(chance: random.Random, behaviour: Behaviour, seed: int) -> RuleWorld | None:
    flaky = behaviour is Behaviour.FLAKY
    count = chance.randint(5, 14) if flaky else chance.randint(4, 12)
    model = layered_graph(chance) if behaviour is Behaviour.LAYERS else graph(chance, count)
    count = len(model)
    planted = _planted(chance, behaviour, model)
    if len(planted) > _MOST_PLANTED:
        return None
    besides = _RULES[behaviour](chance, model) if behaviour in _RULES else ("", {})
    if besides is None:
        return None
    words, refusing = besides
    failing = reduce(or_, refusing.values(), 0)
    of_planted = 0
    for units in planted:
        of_planted |= holding_all(count, units)
    if not _answers_alike(model, failing | of_planted):
        return None
    return RuleWorld(
        behaviour=behaviour,
        seed=seed,
        universe=model,
        failing=failing | of_planted,
        planted=planted,
        words=words,
        refusing=refusing,
        by_quantity=failing & ~of_planted if behaviour in _QUANTITIES else 0,
        lies=chance.choice([0.05, 0.1, 0.2]) if flaky else 0.0,
        one_sided=flaky and chance.random() < 0.5,
        unanswered=_above_a_size(chance, model) if behaviour is Behaviour.TIME_OUTS else 0,
        down=_some_calls(chance) if behaviour is Behaviour.WINDOW else range(0),
    )


def _above_a_size(chance: random.Random, model: Universe) -> Family:
    return holding_more(len(model), model.everything, chance.randint(2, max(2, len(model) * 2 // 3)))


def _some_calls(chance: random.Random) -> range:
    first = chance.randint(0, 25)
    return range(first, first + chance.choice([2, 3, 5, 8]))


def _answers_alike(model: Universe, failing: Family) -> bool:
    """Whether units of one solo, which are the same file when they are cut out alone, get one answer."""
    answers = {(model.solo[unit], failing >> (1 << unit) & 1) for unit in range(len(model))}
    return len(answers) == len(set(model.solo))


def _planted(chance: random.Random, behaviour: Behaviour, model: Universe) -> tuple[UnitSet, ...]:
    sizes: tuple[int, ...]
    match behaviour:
        case Behaviour.MONOTONE:
            many, sizes = chance.choice([1, 1, 2, 2, 3, 4]), (1, 1, 1, 2, 2, 2, 3, 4)
        case Behaviour.MANY:
            many, sizes = chance.randint(4, 8), (1, 1, 1, 1, 2)
        case Behaviour.FLAKY:
            many, sizes = chance.choice([1, 1, 2]), (1, 1, 1, 2, 2)
        case Behaviour.FUSION | Behaviour.SCATTERED | Behaviour.EXCUSE:
            many, sizes = chance.choice([0, 1, 1, 1, 2]), (1, 1, 1, 2, 2, 3)
        case Behaviour.COUNT if chance.random() < 0.4:
            return ()
        case _:
            many, sizes = chance.choice([1, 1, 1, 2]), (1, 1, 1, 2, 2, 3)
    found = {units for pattern in plant(chance, model, many, sizes) for units in pattern.occurrences(model)}
    return tuple(sorted((one for one in found if not any(two != one and two & ~one == 0 for two in found)), key=_order))


def _order(units: UnitSet) -> tuple[int, UnitSet]:
    return size(units), units


def _fusion(chance: random.Random, model: Universe) -> Drawn:
    units = connected_units(chance, model, chance.choice([2, 2, 3, 3, 4]))
    return _unless_complete(chance, model, units) if len(model.components(units)) == 1 else None


def _scattered(chance: random.Random, model: Universe) -> Drawn:
    return _unless_complete(chance, model, some_units(chance, model, chance.choice([2, 2, 3, 3, 4])))


def _unless_complete(chance: random.Random, model: Universe, pattern: UnitSet) -> Drawn:
    """Refuses some of the pattern's ops where its other units are missing."""
    units = list(members(pattern))
    fused = Pattern.at(model, units)
    if len(units) < 2 or not fused.edges:
        return None
    roles = chance.sample(range(len(units)), chance.choice([1, 1, 1, 2, min(3, len(units))]))
    variants = {model.variant[units[role]] for role in roles}
    places = fused.occurrences(model)
    refusing = {}
    for unit in _of_variants(model, variants):
        fine = 0
        for place in places:
            if place >> unit & 1:
                fine |= holding_all(len(model), place)
        refusing[unit] = holding(len(model), unit) & ~fine
    return f"{_ops(variants)} unless fused as {fused}", refusing


def _excuse(chance: random.Random, model: Universe) -> Drawn:
    one, other = _two_variants(chance, model)
    if one == other and chance.random() < 0.8:
        return None
    steps, anywhere = chance.randint(1, 6), chance.random() < 0.2
    refusing = {}
    for unit in _of_variants(model, [one]):
        helping = of(_of_variants(model, [other])) & ~(1 << unit)
        fine = holding_any(len(model), helping) if anywhere else _reaching(model, unit, helping, steps)
        refusing[unit] = holding(len(model), unit) & ~fine
    return f"V{one} unless V{other} is {'in the file' if anywhere else f'within {steps} steps'}", refusing


def _reaching(model: Universe, start: int, goals: UnitSet, steps: int) -> Family:
    """The sets in which a path of at most so many steps leads from the unit to a goal."""
    count = len(model)
    reached = [0] * count
    reached[start] = every(count)
    for _ in range(steps):
        before = tuple(reached)
        for unit in range(count):
            for beside in members(_beside(model, unit)):
                reached[unit] |= before[beside] & holding(count, unit)
    found = 0
    for goal in members(goals):
        found |= reached[goal]
    return found


def _cut(chance: random.Random, model: Universe) -> Drawn:
    """A model's end is the same file as a cut, so it counts as one."""
    side = chance.choice(["input", "output"])
    if chance.random() < 0.5:
        return _pair_at_a_cut(chance, model, side)
    variant = model.variant[chance.randrange(len(model))]
    present = chance.choice(["producer", "consumer", "either"])
    refusing = {}
    for unit in _of_variants(model, [variant]):
        others = {"producer": model.predecessors[unit], "consumer": model.successors[unit]}
        fails = holding(len(model), unit) & _bare(model, unit, side)
        refusing[unit] = fails & holding_any(len(model), others[present]) if present in others else fails
    return f"V{variant} whose {side} is cut{f' beside its {present}' if present != 'either' else ''}", refusing


def _pair_at_a_cut(chance: random.Random, model: Universe, side: str) -> Drawn:
    one, other = _two_variants(chance, model)
    refusing: dict[int, Family] = {}
    for unit in _of_variants(model, [one]):
        for after in members(model.successors[unit]):
            if model.variant[after] == other:
                bare = _bare(model, unit if side == "input" else after, side)
                fails = holding_all(len(model), 1 << unit | 1 << after) & bare
                refusing[unit] = refusing.get(unit, 0) | fails
    return f"V{one} feeding V{other} where the {side} of the two is cut", refusing


def _bare(model: Universe, unit: int, side: str) -> Family:
    """The sets in which this side of a unit is cut in part, or ends the model."""
    neighbours = model.predecessors[unit] if side == "input" else model.successors[unit]
    count = len(model)
    return every(count) & ~holding_all(count, neighbours) if neighbours else every(count)


def _weak(chance: random.Random, model: Universe) -> Drawn:
    one, other = _two_variants(chance, model)
    if one == other:
        return None
    refusing = {}
    for unit in _of_variants(model, [one, other]):
        wanted = other if model.variant[unit] == one else one
        beside = _beside(model, unit) & model.variant_members[wanted]
        refusing[unit] = holding(len(model), unit) & ~holding_any(len(model), beside)
    return f"V{one} and V{other} unless beside each other", refusing


def _by_presence(rule: Callable[[Family, Family], Family], words: str) -> Callable[[random.Random, Universe], Drawn]:
    def drawn(chance: random.Random, model: Universe) -> Drawn:
        one, other = _two_variants(chance, model)
        if one == other:
            return None
        has_one, has_other = (holding_any(len(model), model.variant_members[variant]) for variant in (one, other))
        failing = rule(has_one, has_other)
        units = _of_variants(model, [one, other])
        return words.format(one, other), {unit: failing & holding(len(model), unit) for unit in units}

    return drawn


def _count(chance: random.Random, model: Universe) -> Drawn:
    variant = model.variant[chance.randrange(len(model))]
    total = chance.random() < 0.4
    counted = model.everything if total else model.variant_members[variant]
    if size(counted) < 2:
        return None
    most = chance.randint(1, size(counted) - 1)
    failing = holding_more(len(model), counted, most)
    refusing = {unit: failing & holding(len(model), unit) for unit in members(counted)}
    return f"more than {most} {'nodes' if total else f'V{variant}'}", refusing


def _judged(
    rule: Callable[[random.Random, Universe], compiler_rules.Rule],
) -> Callable[[random.Random, Universe], Drawn]:
    """The families of a rule that judges a part as a whole: of twelve units there are 4096 parts, each judged once."""

    def drawn(chance: random.Random, model: Universe) -> Drawn:
        made = rule(chance, model)
        if made is None:
            return None
        words, refused = made
        found = [0] * len(model)
        for units in range(1, 1 << len(model)):
            for unit in members(refused(units)):
                found[unit] |= 1 << units
        return (words, {unit: family for unit, family in enumerate(found) if family}) if any(found) else None

    return drawn


def _two_variants(chance: random.Random, model: Universe) -> tuple[int, int]:
    """Those of two random units, so that common ones come up more often."""
    return model.variant[chance.randrange(len(model))], model.variant[chance.randrange(len(model))]


def _of_variants(model: Universe, variants: Iterable[int]) -> Iterator[int]:
    for variant in sorted(variants):
        yield from members(model.variant_members[variant])


def _beside(model: Universe, unit: int) -> UnitSet:
    return model.predecessors[unit] | model.successors[unit]


def _ops(variants: Iterable[int]) -> str:
    return " and ".join(f"V{variant}" for variant in sorted(variants))


_RULES: dict[Behaviour, Callable[[random.Random, Universe], Drawn]] = {
    Behaviour.FUSION: _fusion,
    Behaviour.SCATTERED: _scattered,
    Behaviour.EXCUSE: _excuse,
    Behaviour.CUT: _cut,
    Behaviour.WEAK: _weak,
    Behaviour.UNLESS: _by_presence(lambda one, other: one & ~other, "V{} without V{} in the file"),
    Behaviour.XOR: _by_presence(lambda one, other: one ^ other, "V{} or V{} without the other in the file"),
    Behaviour.COUNT: _count,
    Behaviour.SHAPES: _judged(compiler_rules.shapes),
    Behaviour.MEMORY: _judged(compiler_rules.memory),
    Behaviour.LAYOUT: _judged(compiler_rules.layout),
    Behaviour.GREEDY_FUSION: _judged(compiler_rules.greedy_fusion),
    Behaviour.FOLDING: _judged(compiler_rules.folding),
    Behaviour.ERRORS: _judged(compiler_rules.errors),
    Behaviour.BOUNDARY: _judged(compiler_rules.boundary),
    Behaviour.PIECES: _judged(compiler_rules.pieces),
    Behaviour.TYPES: _judged(compiler_rules.types),
    Behaviour.ORDER: _judged(compiler_rules.order),
    Behaviour.DEPTH: _judged(compiler_rules.depth),
    Behaviour.FAN_OUT: _judged(compiler_rules.fan_out),
    Behaviour.PARTITIONS: _judged(compiler_rules.partitions),
    Behaviour.WEIGHTS: _judged(compiler_rules.weights),
    Behaviour.LAYERS: _judged(compiler_rules.layers),
}
