"""Compilers whose output computes wrong numbers, and whose log lists the tensors that differ."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.diagnosis import Certainty, CertificateStatus
from onnxbisect.search.oracle import first_wrong, unlisted_before
from onnxbisect.unitset import UnitSet, is_subset, members, of
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind
from support.engine.worlds import World, all_found, chain, demand_all, monotone, silent, tensor_table, universe
from support.examples import examples

_SEEDS = range(8)


@pytest.mark.parametrize(
    ("wrong", "right", "first", "unlisted"),
    [
        pytest.param({2, 3, 4, 5}, {0, 1}, {2}, set(), id="all listed"),
        pytest.param({3, 5}, {0, 1}, {3}, {2}, id="what is not listed may have begun it"),
        pytest.param({2, 5}, {0, 1}, {2}, set(), id="what is not listed passes it on"),
        pytest.param({2, 5}, {0, 1, 3, 4}, {2, 5}, set(), id="what is right passes nothing on"),
        pytest.param({3, 5}, set(), {3}, {0, 1, 2}, id="nothing is listed as right"),
        pytest.param({0, 1, 2, 3, 4, 5}, {0, 1}, {0}, set(), id="wrong in one table and right in another"),
    ],
)
def test_where_wrong_numbers_begin(wrong: set[int], right: set[int], first: set[int], unlisted: set[int]):
    graph = chain(range(6))
    told = graph, graph.everything, of(wrong), of(right)
    assert set(members(first_wrong(*told))) == first
    assert set(members(unlisted_before(*told))) == unlisted


def test_wrong_numbers_begin_in_several_branches():
    """0 feeds 1 and 2, which 3 adds; 1 and 2 are wrong, and so is what 3 makes of them. A cut is fed right values."""
    graph = universe([0, 1, 2, 3], [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert first_wrong(graph, 0b1111, 0b1110, 0b0001) == 0b0110
    assert first_wrong(graph, 0b1100, 0b1100, 0) == 0b0100


def network(seed: int) -> Universe:
    """100 units of 30 ops, mostly a chain, with branches."""
    chance = random.Random(seed)
    edges = set()
    for unit in range(1, 100):
        edges.add((unit - 1 if chance.random() < 0.85 else chance.randrange(max(0, unit - 8), unit), unit))
        if chance.random() < 0.15:
            edges.add((chance.randrange(max(0, unit - 10), unit), unit))
    ops = [chance.randrange(30) for _ in range(100)]
    numbers = {op: index for index, op in enumerate(dict.fromkeys(ops))}
    return universe([numbers[op] for op in ops], sorted(edges))


def wrong_ops(seed: int, count: int) -> tuple[Universe, set[UnitSet]]:
    """So many ops, computed wrong wherever they stand."""
    graph = network(seed)
    chosen = random.Random(seed).sample(range(len(graph.variant_members)), count)
    return graph, {1 << unit for op in chosen for unit in members(graph.variant_members[op])}


def wrong_places(seed: int, count: int) -> tuple[Universe, set[UnitSet]]:
    """So many units, each for its shape: no other of their op is computed wrong."""
    graph = replace(network(seed), solo=tuple(range(100)))
    return graph, {1 << unit for unit in random.Random(seed).sample(range(10, 90), count)}


def wrong_pairs(seed: int, count: int) -> tuple[Universe, set[UnitSet]]:
    """So many ops, computed wrong where a certain other one feeds them."""
    graph = network(seed)
    op = graph.variant
    edges = [(unit, after) for unit in range(100) for after in members(graph.successors[unit])]
    chosen = set(random.Random(seed).sample(sorted({(op[one], op[other]) for one, other in edges}), count))
    return graph, {of(edge) for edge in edges if (op[edge[0]], op[edge[1]]) in chosen}


def calls(graph: Universe, truth: set[UnitSet], log, kind: Kind = Kind.NUMERIC) -> int:
    world = World(graph, monotone(truth), log, kind=kind)
    step = world.diagnose(most=300)
    smallest = {one for one in truth if not any(other != one and is_subset(other, one) for other in truth)}
    assert all_found(step) == smallest
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    return world.calls


@pytest.mark.parametrize(
    ("made", "count", "most", "partly"),
    [
        (wrong_ops, 1, 6, 12),
        (wrong_ops, 3, 14, 20),
        (wrong_ops, 5, 22, 32),
        (wrong_places, 1, 8, 14),
        (wrong_places, 3, 20, 26),
        (wrong_pairs, 1, 10, 20),
    ],
)
def test_all_that_stands_behind_a_wrong_op_costs_no_calls(made, count: int, most: int, partly: int):
    """In a network of 100 units nearly all that stands behind the first wrong one differs.

    `most` calls where all tensors are compared, `partly` where every second one is.
    """
    for seed in _SEEDS:
        graph, truth = made(seed, count)
        assert calls(graph, truth, tensor_table(graph, truth)) <= most, seed
        assert calls(graph, truth, tensor_table(graph, truth, one_in=2)) <= partly, seed


def test_the_same_tensors_as_names_of_what_is_refused_cost_several_times_as_many():
    """What the rule saves: without it every tensor that differs is a suspect, and silence would be better."""
    named = table = nothing = 0
    for seed in _SEEDS:
        graph, truth = wrong_ops(seed, 1)
        log = tensor_table(graph, truth)
        table += calls(graph, truth, log)
        named += calls(graph, truth, log, Kind.UNSUPPORTED)
        nothing += calls(graph, truth, silent)
    assert 2 * table < nothing < named
    assert 5 * table < named


@pytest.mark.parametrize("places", [1, 4])
def test_a_brief_search_asks_no_part_of_a_pair_where_wrong_numbers_begin(places: int):
    """Seen with TPU-MLIR: MatMul and Add, which it fuses. The model, the Add alone, both, and the rest."""
    pairs = {0b11 << 5 * place for place in range(places)}
    graph = chain([0, 1, 2, 0, 3] * places)
    whole, brief = (World(graph, monotone(pairs), tensor_table(graph, pairs), kind=Kind.NUMERIC) for _ in range(2))
    assert all_found(brief.diagnose(brief=True)) == all_found(whole.diagnose()) == pairs
    assert brief.calls == 4


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Universe, set[UnitSet]]:
    count = draw(st.integers(1, 12))
    edges = {
        (producer, consumer)
        for consumer in range(1, count)
        for producer in draw(st.sets(st.integers(0, consumer - 1), max_size=2))
    }
    sets = draw(st.sets(st.sets(st.integers(0, count - 1), min_size=1, max_size=3).map(of), max_size=4))
    truth = {one for one in sets if not any(other != one and is_subset(other, one) for other in sets)}
    return universe(range(count), sorted(edges)), truth


@given(worlds(), st.sampled_from([1, 2, 3]))
@settings(max_examples=examples(50))
def test_a_table_changes_no_culprit(made, one_in: int):
    """All minimal failing sets are found, as they are without a log."""
    graph, truth = made
    step = World(graph, monotone(truth), tensor_table(graph, truth, one_in), kind=Kind.NUMERIC).diagnose()
    demand_all(step, truth)
    if step.diagnosis.certificate.status is CertificateStatus.PROVEN:
        assert {culprit.certainty for culprit in step.diagnosis.culprits} <= {Certainty.CONFIRMED}


@given(worlds(), st.randoms(use_true_random=False))
@settings(max_examples=examples(50))
def test_a_table_that_lies_decides_nothing(made, chance: random.Random):
    graph, truth = made

    def lies(units: UnitSet) -> Hints:
        names = [f"t{unit}" for unit in members(units)]
        chance.shuffle(names)
        wrong, right = sorted((chance.randint(0, len(names)), chance.randint(0, len(names))))
        return Hints(tensors=tuple(names[:wrong]), right=tuple(names[wrong:right]))

    demand_all(World(graph, monotone(truth), lies, kind=Kind.NUMERIC).diagnose(), truth)


def test_an_op_that_is_fused_with_its_neighbour_is_not_blamed_for_wrong_numbers_alone():
    """V1 computes wrong numbers unless V0 feeds it, as it does in the model. V3 is wrong wherever it stands."""
    graph = chain([0, 1, 2, 3, 4])

    def rule(units: UnitSet) -> bool:
        return bool(units & 0b01000) or units & 0b00011 == 0b00010

    def log(units: UnitSet) -> Hints:
        begun = units & 0b01000 | (0b00010 if units & 0b00011 == 0b00010 else 0)
        wrong = [unit for unit in members(units) if begun & (2 << unit) - 1]
        return Hints(tensors=tuple(f"t{unit}" for unit in wrong))

    step = World(graph, rule, log, kind=Kind.NUMERIC).diagnose()
    assert all_found(step) == {0b01000}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
