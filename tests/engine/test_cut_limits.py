"""Compilers that take so many inputs, outputs, pieces, live tensors or weights at a time: no op is blamed for that."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind
from onnxbisect.search.oracle import BlockedError, Oracle
from onnxbisect.search.pattern import occurrences
from onnxbisect.search.state import CutLimit, Gauge, Measure, SearchState, Suspect, amount
from onnxbisect.search.within_limit import WithinLimit
from onnxbisect.unitset import UnitSet, full, is_subset, members, of, size, union
from onnxbisect.universe import Universe
from support.engine.judging import Run, judge
from support.engine.rule_worlds import Behaviour, world
from support.engine.worlds import World, demand_all, monotone, universe

COUNT = 40


def network(seed: int) -> Universe:
    """A chain with skip connections, of which each op occurs about four times."""
    chance = random.Random(seed)
    variants = [chance.randrange(COUNT // 4) for _ in range(COUNT)]
    skips = [(chance.randrange(max(0, unit - 5), unit), unit) for unit in range(2, COUNT) if chance.random() < 0.15]
    model = universe(variants, sorted({*((unit, unit + 1) for unit in range(COUNT - 1)), *skips}))
    sizes = [chance.randrange(1, 9) << 16 for _ in range(COUNT // 4)]
    # units of one op have weights of one shape
    return replace(model, weights=tuple(sizes[it] for it in variants))


def reference(model: Universe, measure: Measure) -> Callable[[UnitSet], int]:
    """What a compiler counts, written independently of the search."""
    edges = [(one, other) for one in range(len(model)) for other in members(model.successors[one])]

    def inputs(units: UnitSet) -> int:
        inside = set(members(units))
        read = {one for one, other in edges if other in inside and one not in inside}
        return len(read) + len(inside - {other for _, other in edges})

    def outputs(units: UnitSet) -> int:
        inside = set(members(units))
        leaving = {one for one, other in edges if one in inside and other not in inside}
        return len(leaving | (inside - {one for one, _ in edges}))

    def pieces(units: UnitSet) -> int:
        piece = {unit: unit for unit in members(units)}
        for _ in piece:
            for one, other in edges:
                if one in piece and other in piece:
                    piece[one] = piece[other] = min(piece[one], piece[other])
        return len(set(piece.values()))

    def live(units: UnitSet) -> int:
        inside = set(members(units))
        ends = {one: one for one in inside}
        for one, other in edges:
            if other in inside:
                ends[one] = max(ends.get(one, one), other)
        return max(sum(one <= now <= last for one, last in ends.items()) for now in range(len(model)))

    return {
        Measure.INPUTS: inputs,
        Measure.OUTPUTS: outputs,
        Measure.BOTH: lambda units: inputs(units) + outputs(units),
        Measure.PIECES: pieces,
        Measure.LIVE: live,
        Measure.WEIGHTS: lambda units: sum(model.weights[unit] for unit in members(units)),
    }[measure]


def worlds(measure: Measure, count: int) -> Iterator[tuple[World, UnitSet]]:
    """Models that a compiler refuses for one op, whose parts it refuses for too much of `measure` as well."""
    seed = found = 0
    while found < count:
        model, seed = network(seed), seed + 1
        chance = random.Random(seed)
        bad = model.variant_members[chance.choice(model.variant)]
        counted = reference(model, measure)
        most = max(counted(model.everything), counted(model.everything & ~bad), *(counted(1 << it) for it in range(4)))
        most = max(most, chance.choice([3, 4, 6]))
        if size(bad) > 3 or counted(of(range(0, COUNT, 2))) <= most:
            continue

        def refused(
            units: UnitSet, bad: UnitSet = bad, counted: Callable[[UnitSet], int] = counted, most: int = most
        ) -> bool:
            return bool(units & bad) or counted(units) > most

        found += 1
        yield World(model, refused), bad


#: Of which a part of a model may have more than the whole.
PARTED = (Measure.INPUTS, Measure.OUTPUTS, Measure.BOTH, Measure.PIECES)


@pytest.mark.parametrize("measure", PARTED)
def test_an_op_is_told_from_a_limit_of_what_the_compiler_takes_at_a_time(measure: Measure) -> None:
    calls = []
    for one, bad in worlds(measure, 5):
        diagnosis = one.diagnose().diagnosis
        calls.append(one.calls)
        stated = [it for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED]
        assert all(is_subset(it.units, bad) and size(it.units) == 1 for it in stated)
        if diagnosis.certificate.status is CertificateStatus.PROVEN:
            assert {units for it in diagnosis.culprits for units in it.occurrences} == {1 << it for it in members(bad)}
    # asking each node by itself costs this
    assert sum(calls) / len(calls) <= COUNT + 1
    assert max(calls) <= 2 * COUNT


def test_a_limit_of_pieces_is_told_where_some_ops_stay_on_the_host() -> None:
    """Without the limit the search took each few ops for an interaction: 213 calls for 40 units, and 4 had no end."""
    calls, said = [], 0
    for seed in range(20):
        model = network(seed)
        if not all(model.variant_members):
            continue
        chance = random.Random(f"host {seed}")
        bad, hosted, other = chance.sample(model.variant_members, 3)
        hosted |= other
        pieces = reference(model, Measure.PIECES)
        most = chance.choice([1, 2, 4])

        def refused(
            units: UnitSet,
            bad: UnitSet = bad,
            hosted: UnitSet = hosted,
            pieces: Callable[[UnitSet], int] = pieces,
            most: int = most,
        ) -> bool:
            return bool(units & bad) or pieces(units & ~hosted) > most

        if pieces(model.everything & ~(bad | hosted)) <= most:
            continue
        one = World(model, refused)
        diagnosis = one.diagnose(most=4 * COUNT).diagnosis
        calls.append(one.calls)
        stated = [it for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED]
        assert all(it.kind in (CulpritKind.SINGLE, CulpritKind.CAPACITY) for it in stated), seed
        assert all(is_subset(it.units, bad) for it in stated if it.kind is CulpritKind.SINGLE)
        ops = ", ".join(sorted({model.op[it] for it in members(hosted)}))
        said += any(
            f"at most {most} unconnected pieces of ops other than {ops}" in it for it in diagnosis.certificate.unknown
        )
    assert len(calls) >= 10
    assert sum(calls) / len(calls) <= 1.2 * COUNT
    assert 2 * said > len(calls)


@pytest.mark.parametrize("measure", Measure)
def test_how_much_a_probe_has_is_counted_as_a_compiler_counts(measure: Measure) -> None:
    chance = random.Random(1)
    for seed in range(4):
        model = network(seed)
        counted = reference(model, measure)
        for _ in range(30):
            units = of(chance.sample(range(COUNT), chance.randrange(1, COUNT)))
            assert amount(model, measure, units) == counted(units)
            assert CutLimit(Gauge(measure), counted(units) - 1, counted(units)).exceeded(model, units)


@pytest.mark.parametrize(
    ("measure", "most"), [(Measure.OUTPUTS, 3), (Measure.INPUTS, 4), (Measure.BOTH, 8), (Measure.PIECES, 5)]
)
def test_a_model_beyond_the_limit_is_too_much_and_no_op_of_it_is_to_blame(measure: Measure, most: int) -> None:
    """Twelve branches of three ops, joined by an op in front of them, behind them, or not at all."""
    joined = 0 if measure is Measure.PIECES else 1
    first = 0 if measure is Measure.INPUTS else joined
    ops = [3] * first + [0, 1, 2] * 12 + [3] * (joined - first)
    edges = [(first + 3 * it + step, first + 3 * it + step + 1) for it in range(12) for step in (0, 1)]
    if measure is Measure.INPUTS:
        edges += [(3 * it + 2, 36) for it in range(12)]
    elif joined:
        edges += [(0, 1 + 3 * it) for it in range(12)]
    model = universe(ops, edges)
    counted = reference(model, measure)
    world = World(model, lambda units: counted(units) > most)
    diagnosis = world.diagnose(most=100).diagnosis
    stated = [it.kind for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED]
    assert stated == [CulpritKind.CAPACITY]
    (sentence,) = [it for it in diagnosis.certificate.unknown if "at a time" in it]
    assert f"at most {most} {measure}" in sentence


@pytest.mark.parametrize(("measure", "most"), [(Measure.BOTH, 2), (Measure.PIECES, 1), (Measure.INPUTS, 2)])
def test_ops_that_are_refused_together_are_found_within_a_limit(measure: Measure, most: int) -> None:
    """A chain whose parts exceed the limit unless they are one piece, and two ops of which one feeds the other."""
    model = universe([unit % 8 for unit in range(23)] + [8, 9], [(unit, unit + 1) for unit in range(24)])
    counted = reference(model, measure)
    pair = of((23, 24))
    one = World(model, lambda units: counted(units) > most or is_subset(pair, units))
    diagnosis = one.diagnose(most=4 * COUNT).diagnosis
    stated = [it.units for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED]
    assert stated in ([], [pair])
    assert any(is_subset(pair, it.units) for it in diagnosis.culprits)
    said = (*diagnosis.certificate.unknown, *diagnosis.certificate.assumes)
    assert any(f"at most {most} {measure}" in sentence for sentence in said) or stated == [pair]


@pytest.mark.parametrize("behaviour", [Behaviour.BOUNDARY, Behaviour.PIECES])
def test_a_limit_of_a_small_model_states_nothing_false_and_ends(behaviour: Behaviour) -> None:
    """Models of up to twelve units, for which a search without the limit took more than a thousand probes."""
    calls = units = 0
    for seed in range(12):
        run = Run(world=world(behaviour, seed))
        judgement = judge(run, run.diagnose())
        assert not judgement.false_facts, run.world
        assert not judgement.violations, run.world
        calls, units = calls + run.calls, units + len(run.world.universe)
    assert calls <= 5 * units


def test_a_model_of_too_many_weights_is_too_much_and_all_its_pieces_compile() -> None:
    """60 units of 30 ops, of which one is refused and no more than a third of all weights is taken at a time."""
    chance = random.Random(3)
    for _ in range(4):
        variants = [unit % 30 for unit in range(60)]
        kinds = [chance.randrange(1, 40) << 14 for _ in range(30)]
        skips = [(unit, unit + chance.randrange(2, 9)) for unit in range(0, 48, 3)]
        model = universe(variants, sorted({*((unit, unit + 1) for unit in range(59)), *skips}))
        model = replace(model, weights=tuple(kinds[it] for it in variants))
        counted = reference(model, Measure.WEIGHTS)
        most = counted(model.everything) // 3
        refused = model.variant_members[7]

        def refuses(
            units: UnitSet, bad: UnitSet = refused, counted: Callable[[UnitSet], int] = counted, most: int = most
        ) -> bool:
            return bool(units & bad) or counted(units) > most

        one = World(model, refuses)
        diagnosis = one.diagnose(most=150).diagnosis
        stated = {it.kind: it for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED}
        assert set(stated) == {CulpritKind.SINGLE, CulpritKind.CAPACITY}
        assert is_subset(stated[CulpritKind.SINGLE].units, refused)
        (sentence,) = [it for it in diagnosis.certificate.unknown if "at a time" in it]
        assert " MB of weights" in sentence
        taken = [units for units, answers in one.verdicts.items() if answers[0].passed]
        assert union(taken) == model.everything & ~refused


def test_how_much_is_taken_is_asked_and_not_guessed() -> None:
    """The compiler takes seven outputs; the limit that is said is the one between what passed and failed."""
    model = universe(
        [3, *[0, 1, 2] * 12], [(0, 1 + 3 * it) for it in range(12)] + [(1 + u, 2 + u) for u in range(35) if u % 3 < 2]
    )
    counted = reference(model, Measure.OUTPUTS)
    one = World(model, lambda units: counted(units) > 7)
    diagnosis = one.diagnose(most=100).diagnosis
    (sentence,) = [it for it in diagnosis.certificate.unknown if "at a time" in it]
    assert "at most 7 outputs" in sentence
    assert 7 in {counted(units) for units, answers in one.verdicts.items() if answers[0].passed}
    assert 8 in {counted(units) for units, answers in one.verdicts.items() if answers[0].failed}


def test_the_places_of_many_equal_parts_are_found_without_trying_each_order_of_them() -> None:
    """Seven of twelve units of one op: 792 choices in four million orders."""
    model = universe([0] * 12, [])
    assert len(occurrences(model, full(7))) == 792


def test_what_compiles_without_a_refused_op_is_not_too_much() -> None:
    """Of seven pieces the compiler takes three; six of them are one op that it refuses, and the rest compiles."""
    model = universe([*(unit % 9 for unit in range(36)), *[9] * 6], [(unit, unit + 1) for unit in range(35)])
    refused, pieces = model.variant_members[9], reference(model, Measure.PIECES)
    world = World(model, lambda units: bool(units & refused) or pieces(units) > 3)
    scattered = [of(range(first, 36, 9)) for first in range(3)]
    for units in (*scattered, of((0, 9, 18)), 1 << 36):
        world.verdicts[units] = [world.compile(units)]
    found = Suspect(units=scattered[0], fails=scattered[0], occurrences=(tuple(members(scattered[0])),))
    for _ in range(20):
        state = SearchState()
        oracle = Oracle(model, world.verdicts, state=state)
        try:
            assert WithinLimit(model, oracle, state).explains(found)
            break
        except BlockedError:
            world.verdicts.update({units: [world.compile(units)] for units in oracle.wanted})
    assert state.limits
    assert [it.units & refused != 0 for it in state.suspects] == [True]
    assert not state.capacity


def test_no_limit_is_a_fact_where_few_units_are_left_beside_ops_that_fail_alone() -> None:
    """Three units of nine fail alone, and two pairs of the other six: they fit a limit of inputs as well."""
    succ = (270, 88, 0, 80, 0, 0, 256, 0, 0)
    edges = [(unit, other) for unit, after in enumerate(succ) for other in members(after)]
    solos = [1, 3, 5, 7, 9, 6, 11, 10, 10]
    world = World(universe([0, 1, 2, 3, 4, 3, 5, 5, 5], edges, solos), monotone([2, 8, 32, of((0, 4)), of((6, 8))]))
    stated = [it for it in world.diagnose().diagnosis.culprits if it.certainty is Certainty.CONFIRMED]
    assert stated
    assert all(it.kind is not CulpritKind.CAPACITY for it in stated)


@pytest.mark.parametrize(
    ("readers", "truth"),
    [
        (((1, 2, 4, 5, 7, 8, 9), (7, 9), (), (), (5,), (6,), (), (), (), ()), ((0, 1, 2), (1, 5), (0, 1, 7), (6, 7))),
        (((7,), (), (), (5,), (), (6,), (), (), (), ()), ((0, 5), (0, 6), (6, 7))),
    ],
)
def test_a_few_interactions_of_a_small_model_are_no_limit(
    readers: tuple[tuple[int, ...], ...], truth: tuple[tuple[int, ...], ...]
) -> None:
    """ "At most 3 tensors that live together" was told as a fact, though a pair had failed that has no more."""
    graph = universe(list(range(10)), [(unit, reader) for unit, read in enumerate(readers) for reader in read])
    sets = {of(units) for units in truth}
    demand_all(step := World(graph, monotone(sets)).diagnose(), sets)
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


@pytest.mark.parametrize(
    ("variants", "skips", "refused"),
    [
        ([4, 0, 3, 0, 5, 0, 5, 1, 4, 5, 1, 4, 2, 2], {2: [7, 8], 6: [9, 13], 7: [12], 8: [10, 11]}, {2}),
        ([3, 0, 4, 3, 2, 3, 1, 5, 1, 5, 4, 5, 2, 2, 0], {3: [11], 6: [14], 9: [13]}, {0, 3, 5}),
        ([2, 3, 1, 4, 3, 1, 4, 1, 1, 0, 2, 5, 1, 0, 3], {0: [2], 4: [7, 12], 5: [13], 7: [14]}, {1, 4, 14}),
    ],
)
def test_what_exceeds_one_of_several_limits_that_fit_is_no_fact(
    variants: list[int], skips: dict[int, list[int]], refused: set[int]
) -> None:
    """The compiler takes three inputs and outputs, and its answers also fit a limit of what is less."""
    edges = [(unit, unit + 1) for unit in range(len(variants) - 1)]
    model = universe(variants, sorted([*edges, *((one, other) for one in skips for other in skips[one])]))
    counted = reference(model, Measure.BOTH)
    diagnosis = World(model, lambda units: bool(units & of(refused)) or counted(units) > 3).diagnose().diagnosis
    stated = [it.units for it in diagnosis.culprits if it.certainty is not Certainty.SUSPECTED]
    assert all(size(units) == 1 for units in stated)
