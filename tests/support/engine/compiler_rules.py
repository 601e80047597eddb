"""Rules of compilers that judge a part as a whole: what it holds at a time, how it was cut, what lies around an op.

Each returns what is refused, in words, and which units of a part are; None where the model does not lend itself.
"""

import random
from collections.abc import Callable

from onnxbisect.unitset import UnitSet, is_subset, members, of, size
from onnxbisect.universe import Universe

#: What is refused, in words, and the units of a part that are.
Rule = tuple[str, Callable[[UnitSet], UnitSet]] | None


def shapes(chance: random.Random, model: Universe) -> Rule:
    """Refuses an op at some of its shapes, or with some of its weights."""
    variant = _variant(chance, model)
    solos = sorted({model.solo[unit] for unit in members(model.variant_members[variant])})
    if len(solos) < 2:
        return None
    refused = chance.sample(solos, chance.randint(1, len(solos) - 1))
    there = of(unit for unit in members(model.variant_members[variant]) if model.solo[unit] in refused)
    return f"V{variant} at shapes {refused}", lambda units: units & there


def memory(chance: random.Random, model: Universe) -> Rule:
    """Holds at most so many tensors at a time, in the order of the model."""
    last = {unit: max(members(model.successors[unit]), default=unit) for unit in range(len(model))}

    def live(units: UnitSet) -> int:
        made = units | of(other for unit in members(units) for other in members(model.predecessors[unit]))
        return max(sum(one <= unit <= last[one] for one in members(made)) for unit in members(units))

    most = live(model.everything) - chance.choice([1, 1, 2])
    if most < max(live(1 << unit) for unit in range(len(model))):
        return None
    return _rule(model, f"more than {most} tensors at a time", lambda units: units if live(units) > most else 0)


def layout(chance: random.Random, model: Universe) -> Rule:
    """Refuses an op that no other op takes in, through ops that do not mind."""
    moved, taker = _variant(chance, model), _variant(chance, model)
    if moved == taker:
        return None
    through = of(
        unit for unit in range(len(model)) if model.variant[unit] not in (moved, taker) and chance.random() < 0.6
    )
    takers, steps, both = model.variant_members[taker], chance.choice([1, 2, 3]), chance.random() < 0.5

    def refused(units: UnitSet) -> UnitSet:
        return of(unit for unit in members(units & model.variant_members[moved]) if not taken_in(unit, units))

    def taken_in(unit: int, units: UnitSet) -> bool:
        reached = 1 << unit
        for _ in range(steps):
            for one in members(reached & (through | 1 << unit)):
                reached |= (model.predecessors[one] | (model.successors[one] if both else 0)) & units
        return bool(reached & takers)

    return _rule(model, f"V{moved} unless V{taker} takes it in within {steps} steps", refused)


def greedy_fusion(chance: random.Random, model: Universe) -> Rule:
    """Fuses pairs in the model's order, each op once and only with its one consumer, and refuses an op elsewhere."""
    pairs = [(one, other) for one in range(len(model)) for other in members(model.successors[one])]
    if not pairs:
        return None
    fused = {(model.variant[one], model.variant[other]) for one, other in chance.sample(pairs, min(2, len(pairs)))}
    only = chance.choice(sorted({other for _, other in fused}))

    def refused(units: UnitSet) -> UnitSet:
        used: UnitSet = 0
        for unit in members(units):
            consumers = model.successors[unit] & units
            if used >> unit & 1 or size(consumers) != 1 or model.successors[unit] & ~units or consumers & used:
                continue
            if (model.variant[unit], model.variant[consumers.bit_length() - 1]) in fused:
                used |= 1 << unit | consumers
        return units & model.variant_members[only] & ~used

    return _rule(model, f"V{only} unless fused, each op once, as one of {sorted(fused)}", refused)


def folding(chance: random.Random, model: Universe) -> Rule:
    """Refuses an op unless all that it is computed from within so many steps is in the file, as folded shapes are."""
    variant, steps = _variant(chance, model), chance.choice([1, 2, 3])
    needed = {}
    for unit in members(model.variant_members[variant]):
        reached = 1 << unit
        for _ in range(steps):
            reached |= of(other for one in members(reached) for other in members(model.predecessors[one]))
        needed[unit] = reached
    if all(size(reached) == 1 for reached in needed.values()):
        return None

    def refused(units: UnitSet) -> UnitSet:
        return of(unit for unit, reached in needed.items() if units >> unit & 1 and not is_subset(reached, units))

    return _rule(model, f"V{variant} without its producers of {steps} steps", refused, whole=False)


def errors(chance: random.Random, model: Universe) -> Rule:
    """Computes numbers that are wrong once the errors of the ops along a path exceed a limit."""
    error = {variant: chance.choice([0, 0, 1, 1, 2, 3]) for variant in set(model.variant)}

    def worst(units: UnitSet) -> dict[int, int]:
        found: dict[int, int] = {}
        for unit in members(units):
            before = [found[other] for other in members(model.predecessors[unit] & units)]
            found[unit] = error[model.variant[unit]] + max(before, default=0)
        return found

    largest, alone = max(worst(model.everything).values()), max(error.values())
    if largest <= alone:
        return None
    limit = chance.randint(alone, largest - 1)
    return _rule(
        model,
        f"a path whose errors {sorted(error.items())} exceed {limit}",
        lambda units: of(unit for unit, sum_ in worst(units).items() if sum_ > limit),
    )


def boundary(chance: random.Random, model: Universe) -> Rule:
    """Takes so many inputs and outputs, as many as the model has or more."""

    def ends(units: UnitSet) -> int:
        given = of(other for unit in members(units) for other in members(model.predecessors[unit])) & ~units
        first = sum(not model.predecessors[unit] for unit in members(units))
        read = sum(bool(model.successors[unit] & ~units) or not model.successors[unit] for unit in members(units))
        return size(given) + first + read

    most = max(ends(model.everything), chance.choice([3, 4, 6]))
    return _rule(
        model, f"more than {most} inputs and outputs", lambda units: units if ends(units) > most else 0, whole=False
    )


def pieces(chance: random.Random, model: Universe) -> Rule:
    """Takes so many pieces that no tensor connects, as many as the model has or one less."""
    most = max(1, len(model.components(model.everything)) - chance.choice([0, 0, 1]))
    return _rule(
        model,
        f"more than {most} pieces",
        lambda units: units if len(model.components(units)) > most else 0,
        whole=False,
    )


def partitions(chance: random.Random, model: Universe) -> Rule:
    """Takes so many connected pieces of what does not stay on the host."""
    hosted = model.variant_members[_variant(chance, model)] | model.variant_members[_variant(chance, model)]
    whole = len(model.components(model.everything & ~hosted))
    if whole < 2:
        return None
    most = chance.randint(1, whole - 1)
    return _rule(
        model,
        f"more than {most} pieces without {list(members(hosted))}",
        lambda units: units & ~hosted if len(model.components(units & ~hosted)) > most else 0,
    )


def weights(chance: random.Random, model: Universe) -> Rule:
    """Takes weights of so many bytes, and each op alone."""
    sizes = [int(chance.paretovariate(1.2)) for _ in range(len(model))]
    total = sum(sizes)
    most = max(int(total * chance.choice([0.3, 0.6, 0.9])), *sizes)
    if most == total:
        return None
    return _rule(
        model,
        f"weights {sizes} of more than {most}",
        lambda units: units if sum(sizes[unit] for unit in members(units)) > most else 0,
    )


def layers(chance: random.Random, model: Universe) -> Rule:
    """Refuses an op in some of the layers: in the first ones, in the last ones, or in one."""
    places = list(members(model.variant_members[_variant(chance, model)]))
    if len(places) < 2:
        return None
    one = chance.randrange(len(places))
    at = chance.randint(1, len(places) - 1)
    refused = chance.choice([places[:at], places[at:], [places[one]]])
    return f"units {refused} of {places}", lambda units: units & of(refused)


def types(chance: random.Random, model: Universe) -> Rule:
    """Takes no file with an input that some ops make, such as integers."""
    variant = _variant(chance, model)
    made = model.variant_members[variant]

    def refused(units: UnitSet) -> UnitSet:
        return of(unit for unit in members(units) if model.predecessors[unit] & made & ~units)

    return _rule(model, f"an input that V{variant} makes", refused, whole=False)


def order(chance: random.Random, model: Universe) -> Rule:
    """Refuses an op behind another one within so many steps, by a path that is in the file."""
    one, other, steps = _variant(chance, model), _variant(chance, model), chance.choice([1, 2, 3])

    def refused(units: UnitSet) -> UnitSet:
        found: UnitSet = 0
        for unit in members(units & model.variant_members[one]):
            reached = 1 << unit
            for _ in range(steps):
                reached |= of(after for it in members(reached) for after in members(model.successors[it])) & units
            found |= reached & ~(1 << unit) & model.variant_members[other]
        return found

    return _rule(model, f"V{other} behind V{one} within {steps} steps", refused)


def depth(chance: random.Random, model: Universe) -> Rule:
    """Refuses an op behind more than so many ops of a path."""
    variant, most = _variant(chance, model), chance.randint(1, max(1, len(model) // 2))

    def refused(units: UnitSet) -> UnitSet:
        behind: dict[int, int] = {}
        for unit in members(units):
            behind[unit] = 1 + max((behind[it] for it in members(model.predecessors[unit] & units)), default=0)
        return of(unit for unit, ops in behind.items() if ops > most and model.variant[unit] == variant)

    return _rule(model, f"V{variant} behind {most} ops or more", refused)


def fan_out(chance: random.Random, model: Universe) -> Rule:
    """Takes so many consumers of an op."""
    variant, most = _variant(chance, model), chance.choice([1, 2, 3])

    def refused(units: UnitSet) -> UnitSet:
        those = members(units & model.variant_members[variant])
        return of(unit for unit in those if size(model.successors[unit] & units) > most)

    return _rule(model, f"V{variant} with more than {most} consumers", refused)


def _variant(chance: random.Random, model: Universe) -> int:
    """That of a random unit, so that common ones come up more often."""
    return model.variant[chance.randrange(len(model))]


def _rule(model: Universe, words: str, refused: Callable[[UnitSet], UnitSet], *, whole: bool = True) -> Rule:
    """The rule; None where it refuses nothing of the whole model, if `whole`."""
    return None if whole and not refused(model.everything) else (words, refused)
