"""Compilers of larger models: what they refuse, what their logs name, and how they fail to answer (`CLASSES`)."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status
from support.engine import compiler_rules
from support.engine.large_worlds import Answers, Chance, LargeWorld, honest, model, monotone, planted, shortcut_chain
from support.engine.worlds import universe

_MOST_DRAWS = 500


@dataclass(frozen=True, kw_only=True)
class LargeClass:
    """A row of the table."""

    letter: str
    words: str
    draw: Callable[[Chance], LargeWorld | None]
    recheck: bool = False

    def worlds(self, count: int, first: int = 0) -> Iterable[tuple[int, LargeWorld]]:
        """So many worlds whose whole fails, each with its seed."""
        seed = first
        for _ in range(count):
            for _ in range(_MOST_DRAWS):
                seed += 1
                made = self.draw(Chance(f"{self.letter}/{self.words}/{seed}"))
                if made is not None and made.refused(made.universe.everything):
                    yield seed, made
                    break


def ruled(
    rule: Callable[[Chance, Universe], compiler_rules.Rule],
    singles: Sequence[int] = (0,),
    shapes: int = 1,
    kind: Kind = Kind.UNSUPPORTED,
) -> Callable[[Chance], LargeWorld | None]:
    """A class that follows one of the rules of small models, and refuses some ops."""

    def draw(chance: Chance) -> LargeWorld | None:
        graph = model(chance, shapes=shapes)
        made, sets = rule(chance, graph), planted(chance, graph, chance.choice(singles))
        if made is None:
            return None
        _, refused = made
        bad = union(sets)
        world = LargeWorld(
            universe=graph, refused=lambda units: bool(units & bad or refused(units)), planted=sets, kind=kind
        )
        # units of one solo are the same file when they are cut out alone, so they get one answer
        answers = {(graph.solo[unit], world.refused(1 << unit)) for unit in members(graph.everything)}
        return world if len(answers) == len(set(graph.solo)) else None

    return draw


def live_bytes(chance: Chance, graph: Universe) -> compiler_rules.Rule:
    """Holds so many bytes at a time, in the order of the model."""
    sizes = [1 << chance.randrange(6) for _ in range(len(graph))]

    def most(units: UnitSet) -> int:
        given = union(graph.predecessors[unit] for unit in members(units)) & ~units
        live = sum(sizes[unit] for unit in members(given))
        largest, done = live, 0
        for unit in members(units):
            live += sizes[unit]
            largest, done = max(largest, live), done | 1 << unit
            over = (it for it in members(graph.predecessors[unit] | 1 << unit) if not graph.successors[it] & ~done)
            live -= sum(sizes[it] for it in over)
        return largest

    one, whole = max(most(1 << unit) for unit in range(len(graph))), most(graph.everything)
    limit = one + (whole - one) * chance.choice([0.3, 0.6, 0.9])
    return ("more bytes than there are", lambda units: units if most(units) > limit else 0) if whole > limit else None


_FUSED = (
    ("Conv", "BN", "Relu"),
    ("Conv", "BN"),
    ("Conv", "Relu"),
    ("Add", "Relu"),
    ("MatMul", "Add"),
    ("Sigmoid", "Mul"),
)
_PLAIN = (("Pool",), ("Mul",), ("Conv",), ("Relu",), ("BN",))


def fused_greedily(chance: Chance) -> LargeWorld:
    """Fuses patterns one after the other, through ops with one reader in the file, and refuses some ops elsewhere."""
    count = chance.choice([9, 12, 30, 60, 100])
    ops: list[str] = []
    while len(ops) < count:
        ops += chance.choice([*_FUSED, *_PLAIN])
    ops = ops[:count]
    numbers = {op: number for number, op in enumerate(dict.fromkeys(ops))}
    graph = universe([numbers[op] for op in ops], shortcut_chain(chance, count, chance.choice([0.1, 0.3])))
    fused = chance.sample(_FUSED, chance.choice([2, 3, 4]))
    behind = sorted({op for pattern in fused for op in pattern[1:]})
    only = of(
        unit
        for op in chance.sample(behind, chance.choice([1, 1, min(2, len(behind))]))
        for unit in range(count)
        if ops[unit] == op
    )
    outputs_too = chance.random() < 0.5

    def taken(unit: int, pattern: tuple[str, ...], units: UnitSet) -> UnitSet:
        found, last = 1 << unit, unit
        for op in pattern[1:]:
            readers = graph.successors[last] & units
            if size(readers) != 1 or (outputs_too and graph.successors[last] & ~units) or ops[lowest(readers)] != op:
                return 0
            last = lowest(readers)
            found |= readers
        return found

    def refused(units: UnitSet) -> bool:
        used = 0
        for unit in members(units):
            ways = (
                taken(unit, pattern, units) for pattern in fused if ops[unit] == pattern[0] and not used >> unit & 1
            )
            used |= next((it for it in ways if it and not it & used), 0)
        return bool(units & only & ~used)

    return LargeWorld(universe=graph, refused=refused)


def counted(chance: Chance, ops: int) -> LargeWorld | None:
    """Takes so many of one op or two, and refuses some ops."""
    graph = model(chance, (12, 40, 80, 160))
    sets = planted(chance, graph, chance.choice([0, 1, 2]))
    pools = [it for it in graph.variant_members if size(it) >= 3 and not it & union(sets)]
    if len(pools) < ops:
        return None
    limits = [(pool, chance.randint(1, min(6, size(pool) - 1))) for pool in chance.sample(pools, ops)]
    bad = union(sets)
    return LargeWorld(
        universe=graph,
        refused=lambda units: bool(units & bad) or any(size(units & pool) > most for pool, most in limits),
        planted=sets,
    )


def by_name(chance: Chance) -> LargeWorld | None:
    """Refuses one or two of the places of an op, which look like the others."""
    graph = model(chance)
    repeated = [unit for unit in range(len(graph)) if size(graph.variant_members[graph.variant[unit]]) > 1]
    sets = frozenset(1 << unit for unit in chance.sample(repeated, chance.choice([1, 2])))
    return LargeWorld(
        universe=graph, refused=lambda units: bool(units & union(sets)), planted=sets, all_that_fails=True
    )


def answering(answers: Callable[[Chance, Universe], Answers]) -> Callable[[Chance], LargeWorld]:
    """Planted ops and pairs, of a compiler that does not always answer so."""

    def draw(chance: Chance) -> LargeWorld:
        one = monotone(chance)
        return replace(one, answers=answers(chance, one.universe), kind=Kind.ERROR)

    return draw


def _for_a_while(status: Status) -> Callable[[Chance, Universe], Answers]:
    def answers(chance: Chance, _: Universe) -> Answers:
        first, length = chance.randint(0, 25), chance.choice([2, 3, 5, 8])
        return lambda units, attempt, call, failed: (
            status if first <= call < first + length else honest(units, attempt, call, failed)
        )

    return answers


def _now_and_then(
    status: Status, share: float, *, large: bool = False, sticky: bool = False, by_size: bool = False
) -> Callable[[Chance, Universe], Answers]:
    def answers(chance: Chance, graph: Universe) -> Answers:
        salt = chance.random()

        def said(units: UnitSet, attempt: int, call: int, failed: bool) -> Status:
            spared = large and 2 * size(units) <= len(graph)
            odds = share * size(units) / len(graph) if by_size else share
            drawn = random.Random(f"{salt}/{units}/{0 if sticky else attempt}").random() < odds
            return status if drawn and not spared else honest(units, attempt, call, failed)

        return said

    return answers


def _above(share: float) -> Callable[[Chance, Universe], Answers]:
    return lambda chance, graph: (
        lambda units, attempt, call, failed: (
            Status.UNRESOLVED if size(units) > share * len(graph) else honest(units, attempt, call, failed)
        )
    )


def scattered(chance: Chance) -> LargeWorld:
    """Refuses a file with one each of three or four ops."""
    graph = model(chance, (30, 60, 120))
    groups = chance.sample(graph.variant_members, chance.choice([3, 3, 4]))
    return LargeWorld(universe=graph, refused=lambda units: all(units & group for group in groups))


def naming(name: Callable[[Universe, UnitSet, int], Iterable[int]]) -> Callable[[Chance], LargeWorld]:
    """Planted ops and pairs, of a compiler whose log names something: by the file and the first unit of a culprit."""

    def draw(chance: Chance) -> LargeWorld:
        one = monotone(chance)
        graph = one.universe

        def log(units: UnitSet) -> Hints:
            named = list(name(graph, units, lowest(min(it for it in one.planted if is_subset(it, units)))))
            return Hints(ops=tuple(dict.fromkeys(graph.op[it] for it in named)), nodes=tuple(f"n{it}" for it in named))

        return replace(one, log=log)

    return draw


#: What a log names.
_NAMES: dict[str, Callable[[Universe, UnitSet, int], Iterable[int]]] = {
    "the offender": lambda graph, units, at: [at],
    "nothing": lambda graph, units, at: [],
    "what reads it": lambda graph, units, at: list(members(graph.successors[at] & units))[:1] or [at],
    "what it reads": lambda graph, units, at: list(members(graph.predecessors[at] & units))[:1] or [at],
    "the first node": lambda graph, units, at: [lowest(units)],
    "the last node": lambda graph, units, at: [units.bit_length() - 1],
    "all nodes": lambda graph, units, at: members(units),
    "all nodes up to it": lambda graph, units, at: [it for it in members(units) if it <= at],
    "any node": lambda graph, units, at: [random.Random(units).choice(list(members(units)))],
    "its number in the file": lambda graph, units, at: [size(units & (1 << at) - 1)],
    "another op": lambda graph, units, at: [(7 * at + 3) % len(graph)],
    "all around it": lambda graph, units, at: members(graph.ball(1 << at, 1, units)),
}


def typed(chance: Chance, *, declared: bool) -> LargeWorld | None:
    """Takes no file with an input that some ops make, such as integers; `declared` where the search is told."""
    graph = model(chance, (10, 12, 40, 80))
    sets = planted(chance, graph, chance.choice([1, 2]))
    made = union(chance.sample(graph.variant_members, max(1, len(graph.variant_members) // 4)))
    needed = {unit: it & made for unit, it in enumerate(graph.predecessors) if it & made}
    numbers: dict[tuple[int, int], int] = {}  # the type of what it reads is part of the question
    kinds = [numbers.setdefault((it, size(needed.get(unit, 0))), len(numbers)) for unit, it in enumerate(graph.variant)]
    graph = replace(graph, variant=tuple(kinds), solo=tuple(kinds), required_producers=needed if declared else {})
    bad = union(sets)
    return LargeWorld(
        universe=graph,
        refused=lambda units: bool(units & bad) or any(needed.get(unit, 0) & ~units for unit in members(units)),
        planted=sets,
    )


def layered(chance: Chance, which: str) -> LargeWorld:
    """Equal layers one after the other, and an op that fails in some: by their number, or by what is before it."""
    layers, length = chance.choice([8, 12, 24]), chance.choice([5, 8, 12])
    inner = shortcut_chain(chance, length, 0.3, 4)
    edges = [(start + one, start + other) for start in range(0, layers * length, length) for one, other in inner]
    edges += [(start - 1, start) for start in range(length, layers * length, length)]
    graph = universe([*range(length)] * layers, edges)
    op, most = chance.randrange(length), chance.randint(1, layers - 1)
    places = list(members(graph.variant_members[op]))
    if which == "count":
        return LargeWorld(universe=graph, refused=lambda units: size(units & of(places)) > most)
    chosen = places[:most] if which == "first" else places[most:]
    sets = frozenset(1 << unit for unit in chosen)
    return LargeWorld(universe=graph, refused=lambda units: bool(units & of(chosen)), planted=sets, all_that_fails=True)


def in_two_stages(chance: Chance) -> LargeWorld:
    """A parser that names some of the ops it refuses, and a later pass that crashes at others without a word."""
    one = monotone(chance, (30, 60, 120), (2, 3, 4))
    ops = sorted({one.universe.variant[lowest(it)] for it in one.planted if size(it) == 1})
    loud = union(one.universe.variant_members[op] for op in chance.sample(ops, len(ops) // 2))

    def log(units: UnitSet) -> Hints:
        named = [one.universe.op[it] for it in members(units & loud)][:1]
        return Hints(ops=tuple(named), nodes=tuple(f"n{it}" for it in list(members(units & loud))[:1]))

    return replace(one, log=log)


def too_many(chance: Chance, graph: Universe) -> compiler_rules.Rule:
    """Takes so many ops."""
    most = int(len(graph) * chance.choice([0.3, 0.6, 0.9]))
    return f"more than {most} ops", lambda units: units if size(units) > most else 0


_LIES: tuple[tuple[str, Callable[[Chance, Universe], Answers]], ...] = (
    ("some calls one after the other fail", _for_a_while(Status.FAIL)),
    ("some calls one after the other get no answer", _for_a_while(Status.UNRESOLVED)),
    ("5 % of the large files fail", _now_and_then(Status.FAIL, 0.05, large=True)),
    ("20 % of the large files fail", _now_and_then(Status.FAIL, 0.2, large=True)),
    ("10 % get no answer", _now_and_then(Status.UNRESOLVED, 0.1)),
    ("4 % of the questions always fail", _now_and_then(Status.FAIL, 0.04, sticky=True)),
    ("the larger a file, the fewer answers", _now_and_then(Status.UNRESOLVED, 0.3, by_size=True)),
)
_HIDDEN: tuple[tuple[str, str, Callable[[Chance], LargeWorld | None]], ...] = (
    ("A", "an op at some of its shapes", ruled(compiler_rules.shapes, shapes=5)),
    ("A", "live tensors of more than so many bytes", ruled(live_bytes, kind=Kind.RESOURCE)),
    ("B", "an op, unless another one takes it in", ruled(compiler_rules.layout)),
    ("C", "ops, unless fused greedily where each producer has one reader", fused_greedily),
    ("D", "an op without all that it is computed from in some steps", ruled(compiler_rules.folding, (1, 2))),
    ("E", "a path along which errors add up", ruled(compiler_rules.errors, kind=Kind.NUMERIC)),
    ("F", "more than so many of an op", partial(counted, ops=1)),
    ("F", "more than so many of two ops", partial(counted, ops=2)),
    ("F", "more than so many inputs and outputs", ruled(compiler_rules.boundary, (1, 2))),
    ("F", "more than so many pieces, without ops on the host", ruled(compiler_rules.partitions, (0, 1))),
    ("G", "one of several ops that look the same, by its name", by_name),
    *(("I", f"no answer above {share:.0%} of the model", answering(_above(share))) for share in (0.3, 0.6)),
    ("J", "an op behind another one", ruled(compiler_rules.order)),
    ("K", "three or four ops anywhere in the file", scattered),
    ("L", "many ops and pairs", partial(monotone, counts=(800, 2000), singles=(8, 12), pairs=(0, 2, 4))),
    *(("M", f"one to three patterns; the log names {what}", naming(name)) for what, name in _NAMES.items()),
    ("N", "a file in unconnected pieces", ruled(compiler_rules.pieces, (1, 2))),
    ("N", "a file with an input of some type", partial(typed, declared=False)),
    ("N", "a file with an input of some type, declared", partial(typed, declared=True)),
    ("O", "more than so many of equal layers", partial(layered, which="count")),
    ("O", "an op behind so many others", ruled(compiler_rules.depth)),
    *(
        ("O", f"an op in the {which} of equal layers, which make equal files", partial(layered, which=which))
        for which in ("first", "last")
    ),
    ("P", "more than so many bytes of weights, and some ops", ruled(compiler_rules.weights, (0, 1, 2))),
    ("P", "more than so many ops, and some ops", ruled(too_many, (0, 1, 2), kind=Kind.RESOURCE)),
    ("R", "patterns that its parser names, and others at which it crashes", in_two_stages),
    ("V", "an op with more than so many readers", ruled(compiler_rules.fan_out)),
)
CLASSES = (
    *(LargeClass(letter=letter, words=words, draw=draw) for letter, words, draw in _HIDDEN),
    *(
        LargeClass(
            letter="H", words=f"some patterns; {words}{', rechecked' * again}", draw=answering(lie), recheck=again
        )
        for words, lie in _LIES
        for again in (False, True)
    ),
)
