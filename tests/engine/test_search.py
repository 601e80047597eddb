"""The search against brute force, on random small graphs and random hidden failure rules."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.cut import split_variants_by_producers
from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind
from onnxbisect.search import next_asks, plan
from onnxbisect.search.atoms import BlameOdds
from onnxbisect.search.conclude import COMBINED, TWO
from onnxbisect.search.pattern import ways_to_break
from onnxbisect.search.state import Atom, Suspect
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from support.engine.worlds import (
    Rule,
    World,
    all_found,
    chain,
    demand_all,
    first_offender,
    minimal_failing_sets,
    monotone,
    silent,
    universe,
)
from support.examples import examples

LOGS = ["silent", "first", "all", "misleading"]


@st.composite
def dags(draw: st.DrawFn, distinct: bool = False) -> Universe:
    count = draw(st.integers(1, 12))
    edges = []
    for consumer in range(1, count):
        producers = draw(st.sets(st.integers(0, consumer - 1), max_size=2))
        edges += [(producer, consumer) for producer in producers]
    variants = list(range(count)) if distinct else draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    numbers = {variant: index for index, variant in enumerate(dict.fromkeys(variants))}
    return universe([numbers[variant] for variant in variants], edges)


@st.composite
def minimal_sets(draw: st.DrawFn, count: int) -> set[UnitSet]:
    sets = draw(st.sets(st.sets(st.integers(0, count - 1), min_size=1, max_size=3).map(of), max_size=4))
    return {one for one in sets if not any(other != one and is_subset(other, one) for other in sets)}


def logger(kind: str, graph: Universe, truth: set[UnitSet]):
    """What the compiler's log names of a failing set: nothing, one culprit, all of them, or an innocent."""
    if kind == "silent":
        return silent

    def log(units: UnitSet) -> Hints:
        inside = sorted(one for one in truth if is_subset(one, units))
        if kind == "misleading":
            return Hints(nodes=(f"n{max(members(units))}",))
        chosen = inside[:1] if kind == "first" else inside
        return Hints(nodes=tuple(f"n{unit}" for one in chosen for unit in members(one)))

    return log


@given(st.data(), dags(distinct=True), st.sampled_from(LOGS), st.sampled_from([1, 4]))
@settings(max_examples=examples(60))
def test_all_minimal_failing_sets_are_found_and_proven(data, graph, kind, width):
    truth = data.draw(minimal_sets(len(graph)))
    world = World(graph, monotone(truth), logger(kind, graph, truth))
    step = world.diagnose(width)
    demand_all(step, truth)
    assert step.diagnosis.verdict is (Status.FAIL if truth else Status.PASS)
    assert step.diagnosis.needs_context == ()
    if step.diagnosis.certificate.status is CertificateStatus.PROVEN:
        assert {culprit.certainty for culprit in step.diagnosis.culprits} <= {Certainty.CONFIRMED}


@st.composite
def structural_rules(draw: st.DrawFn, graph: Universe):
    """Rules that look at variants and dataflow only, as compilers do: bad ops, fed-by pairs, both-present pairs."""
    variants = st.integers(0, max(graph.variant))
    bad = draw(st.sets(variants, max_size=2))
    adjacent = draw(st.sets(st.tuples(variants, variants), max_size=2))
    both = draw(st.sets(st.tuples(variants, variants), max_size=1))

    def rule(units: UnitSet) -> bool:
        inside = list(members(units))
        present = {graph.variant[unit] for unit in inside}
        if present & bad or any(one != two and {one, two} <= present for one, two in both):
            return True
        return any(
            (graph.variant[unit], graph.variant[after]) in adjacent
            for unit in inside
            for after in members(graph.successors[unit] & units)
        )

    return rule


@given(st.data(), dags(), st.sampled_from([1, 4]))
@settings(max_examples=examples(75))
def test_every_occurrence_of_a_structural_culprit_is_found(data, graph, width):
    rule = data.draw(structural_rules(graph))
    world = World(graph, rule)
    demand_all(world.diagnose(width), minimal_failing_sets(len(graph), rule))


def test_two_ops_refused_together_wherever_they_stand_are_no_limit_of_what_is_taken():
    """Each set with more outputs than passed holds both ops: only one without either tells the two apart."""
    variants, edges = (0, 0, 1, 2, 1, 1, 0, 3, 1), ((0, 1), (0, 2), (0, 3), (1, 2), (1, 6), (4, 6), (4, 7))
    graph = universe(variants, edges)
    first, second = graph.variant_members[0], graph.variant_members[1]

    def rule(units: UnitSet) -> bool:
        return bool(units & of([3, 7]) or (units & first and units & second))

    step = World(graph, rule).diagnose()

    assert all_found(step) == minimal_failing_sets(len(graph), rule)
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


@given(st.data(), dags())
@settings(max_examples=examples(75))
def test_what_is_refused_at_one_shape_is_told_from_what_is_refused_together(data, graph):
    """A place of an interaction that holds a unit refused by itself is no minimal failing set."""
    solos = data.draw(st.lists(st.integers(0, 1), min_size=len(graph), max_size=len(graph)))
    graph = replace(graph, solo=tuple(2 * variant + shape for variant, shape in zip(graph.variant, solos, strict=True)))
    refused = data.draw(st.sets(st.sampled_from(graph.solo), max_size=1))
    together = data.draw(structural_rules(graph))

    def rule(units: UnitSet) -> bool:
        return any(graph.solo[unit] in refused for unit in members(units)) or together(units)

    step = World(graph, rule).diagnose()
    demand_all(step, minimal_failing_sets(len(graph), rule))


@given(st.data(), dags())
@settings(max_examples=examples(75))
def test_fused_patterns_never_make_a_false_culprit(data, graph):
    """An op that fails unless one of its neighbours stands beside it, among really unsupported ones."""
    fused = data.draw(st.sets(st.integers(0, max(graph.variant)), max_size=2))
    bad = data.draw(st.sets(st.integers(0, max(graph.variant)), max_size=2)) - fused

    def rule(units: UnitSet) -> bool:
        for unit in members(units):
            around = graph.successors[unit] | graph.predecessors[unit]
            if graph.variant[unit] in bad or (graph.variant[unit] in fused and not around & units):
                return True
        return False

    diagnosis = World(graph, rule).diagnose().diagnosis
    assert (diagnosis.verdict is Status.FAIL) == rule(graph.everything)
    if diagnosis.certificate.status is CertificateStatus.PROVEN:
        assert not rule(diagnosis.remainder)
    for culprit in diagnosis.culprits:
        if culprit.certainty is Certainty.CONFIRMED:
            for units in culprit.occurrences:
                assert rule(units)
                assert not passes_in_company(graph, rule, units), f"{units:b} is blamed, though it passes in company"
            for unit in members(culprit.units):
                part = culprit.units & ~(1 << unit)
                assert not part or not rule(part)


def passes_in_company(graph: Universe, rule: Rule, units: UnitSet) -> bool:
    """Brute force: whether any part of the model that holds these units passes."""
    rest = list(members(graph.everything & ~units))
    return any(not rule(units | of(company)) for count in range(len(rest) + 1) for company in combinations(rest, count))


def test_an_op_that_is_fused_with_its_own_like_is_no_culprit():
    """V0 is fused with a neighbour of its own kind; both are left out together, beside a bad V1."""
    graph = universe([0, 0, 1], [(0, 1), (1, 2)])

    def rule(units: UnitSet) -> bool:
        return bool(units & 0b100) or units in (0b001, 0b010)

    step = World(graph, rule).diagnose()
    assert all_found(step) == {0b100}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_the_place_with_most_company_stands_for_an_op():
    """V1 passes beside V0, and fails at its first place, where it stands by itself."""
    graph = universe([1, 0, 1], [(1, 2)])

    def rule(units: UnitSet) -> bool:
        return bool(units & 0b001) or units & 0b110 == 0b100

    assert all_found(World(graph, rule).diagnose()) == {0b001}


def test_a_pattern_whose_neighbour_is_left_out_to_break_a_pair_is_put_back_where_it_is_kept():
    """V0 is fused with V1; V1 and V2 fail together, and breaking that pair one way takes V0's neighbour away."""
    graph = chain([0, 1, 2, 3])

    def rule(units: UnitSet) -> bool:
        return units & 0b0110 == 0b0110 or units & 0b0011 == 0b0001 or bool(units & 0b1000)

    step = World(graph, rule).diagnose()
    for culprit in step.diagnosis.culprits:
        if culprit.certainty is Certainty.CONFIRMED:
            assert not any(passes_in_company(graph, rule, units) for units in culprit.occurrences)
    assert 0b1000 in all_found(step)
    assert 0b0110 in all_found(step)


def test_what_a_log_says_of_one_place_does_not_blame_another():
    """An Erf (V1) is fused between Div (V0) and Add (V2), as GELU is; one more stands alone, and only ops are named."""
    graph = chain([0, 1, 2, 3, 4, 1])

    def rule(units: UnitSet) -> bool:
        return bool(units & 0b100000) or (units & 0b111 != 0b111 and bool(units & 0b010))

    step = World(graph, rule, lambda _: Hints(ops=("V1",)), fingerprints=True).diagnose()
    assert all_found(step) == {0b100000}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert [artefact.occurrences for artefact in step.diagnosis.needs_context] == [(0b010,)]


def test_a_log_that_lists_nodes_is_taken_at_its_word_first():
    """Every second op is refused unless the one before it stands beside it; three are refused where they stand."""
    graph = chain([unit % 10 for unit in range(60)])
    bad = {5, 15, 41}

    def refused(units: UnitSet) -> list[int]:
        return [
            unit
            for unit in members(units)
            if unit in bad or (unit % 2 and unit not in bad and not units >> (unit - 1) & 1)
        ]

    world = World(graph, lambda units: bool(refused(units)))
    world.log = lambda units: Hints(nodes=tuple(f"n{unit}" for unit in refused(units)))
    step = world.diagnose()
    assert all_found(step) == {1 << unit for unit in bad}
    assert [world.verdicts[graph.everything & ~of(bad)][0].status] == [Status.PASS]
    assert world.calls <= 20


def test_what_is_named_and_fails_only_with_a_neighbour_is_found_there():
    """A compiler names the tensor between two ops that it refuses together, somewhere in 300."""
    graph = chain(range(300))
    pair = 0b11 << 170
    world = World(graph, monotone([pair]), lambda _: Hints(tensors=("t170",)))
    assert all_found(world.diagnose()) == {pair}
    assert world.calls <= 12


def test_the_same_verdicts_give_the_same_plan_in_whatever_order_they_came():
    graph = chain([0, 1, 2, 0, 3, 1, 4, 2, 5])
    world = World(graph, lambda units: bool(units & graph.variant_members[3]) or bool(units & graph.variant_members[5]))
    world.diagnose(4)
    backwards = dict(reversed(world.verdicts.items()))
    assert plan(graph, backwards) == plan(graph, world.verdicts)


@pytest.mark.parametrize("width", [1, 4])
def test_the_next_questions_are_those_of_the_plan(width):
    graph = chain([0, 1, 2, 0, 3, 1, 4, 2, 5])
    world = World(graph, monotone([0b11000, 0b100]))
    while asks := next_asks(graph, world.verdicts, width):
        assert asks == list(plan(graph, world.verdicts, width).asks)
        world.verdicts.setdefault(asks[0].units, []).append(world.compile(asks[0].units))
    assert not plan(graph, world.verdicts, width).asks


@pytest.mark.long
def test_a_compiler_that_lies_one_time_in_ten_is_told_by_rechecking_and_no_lie_becomes_a_fact():
    exact, count_of_worlds = 0, examples(100)
    for seed in range(count_of_worlds):
        chance = random.Random(seed)
        count = chance.randrange(4, 13)
        graph = universe(list(range(count)), [(chance.randrange(unit), unit) for unit in range(1, count)])
        sets = {of(chance.sample(range(count), chance.choice([1, 1, 1, 2, 3]))) for _ in range(chance.randrange(4))}
        truth = {one for one in sets if not any(other != one and is_subset(other, one) for other in sets)}
        step = World(graph, monotone(truth), flaky=0.1, seed=seed).diagnose(recheck=True)
        facts = [culprit for culprit in step.diagnosis.culprits if culprit.certainty is Certainty.CONFIRMED]
        assert {units for culprit in facts for units in culprit.occurrences} <= truth, seed
        proven = step.diagnosis.certificate.status is CertificateStatus.PROVEN
        assert not proven or all_found(step) == truth, seed
        exact += all_found(step) == truth
    assert exact > 0.85 * count_of_worlds


def test_a_contradiction_is_seen_without_rechecking_and_bounds_the_certificate():
    graph = chain(range(12))

    class Forgetful(World):
        """Fails the whole model once, and never again."""

        def compile(self, units: UnitSet) -> Verdict:
            first = units == self.universe.everything and not self.verdicts.get(units)
            return super().compile(units) if not first else Verdict(status=Status.FAIL)

    step = Forgetful(graph, monotone([])).diagnose()
    assert step.diagnosis.culprits == ()
    assert step.diagnosis.flaky == (graph.everything,)
    assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED


def test_a_probe_without_an_answer_blames_nobody_and_is_named():
    graph = chain(range(30))

    class Stalling(World):
        def compile(self, units: UnitSet) -> Verdict:
            return Verdict(status=Status.UNRESOLVED) if units >> 7 & 1 else super().compile(units)

    step = Stalling(graph, monotone([1 << 12])).diagnose()
    assert all_found(step) == {1 << 12}
    assert step.diagnosis.unresolved == 1 << 7
    assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED


def test_one_place_without_an_answer_leaves_its_siblings_known():
    graph = chain([0, 1, 2] * 8, solos=list(range(24)))

    class Stalling(World):
        def compile(self, units: UnitSet) -> Verdict:
            return Verdict(status=Status.UNRESOLVED) if units >> 7 & 1 else super().compile(units)

    step = Stalling(graph, monotone([1 << 12])).diagnose()
    assert all_found(step) == {1 << 12}
    assert step.diagnosis.unresolved == 1 << 7


@pytest.mark.parametrize("count", [5, 6, 30])
def test_a_list_blames_an_op_beside_what_gets_no_answer_without_it(count: int):
    """Nothing is known of what an unknown op makes, so what reads it cannot be cut out of it."""
    graph = chain(range(count))
    truth = {1 << 1, 1 << 3}

    class Unknown(World):
        def compile(self, units: UnitSet) -> Verdict:
            cut = units >> 4 & 1 and not units >> 3 & 1
            return Verdict(status=Status.UNRESOLVED) if cut else super().compile(units)

    step = Unknown(graph, monotone(truth), logger("all", graph, truth)).diagnose()
    assert all_found(step) == truth
    assert all(culprit.certainty is Certainty.CONFIRMED for culprit in step.diagnosis.culprits)
    assert step.diagnosis.unresolved == 1 << 4


def test_a_pair_that_fails_wherever_both_are_is_one_culprit_with_every_combination():
    graph = chain([0, 2, 1, 3] * 20)
    world = World(graph, lambda units: {0, 1} <= {graph.variant[unit] for unit in members(units)}, alike=True)
    step = world.diagnose(width=16)
    [culprit] = step.diagnosis.culprits
    assert len(culprit.occurrences) == 20 * 20
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert world.calls <= 40


@pytest.mark.parametrize("first", range(7))
def test_a_pair_in_a_small_piece_is_found_in_nine_calls_where_the_log_is_silent(first: int):
    """Ops that replace others were chosen because they pass, so none is asked alone but the last of those that fail."""
    world = World(chain(range(8)), monotone([0b11 << first]))
    assert all_found(world.diagnose(brief=True)) == {0b11 << first}
    assert world.calls <= 9


def test_a_repair_does_not_put_back_a_pair_whose_wrong_numbers_the_whole_model_shows():
    """Such a call compares the numbers of nearly the whole model, which had them wrong at that very place."""
    graph = chain([0, 1, 2, 3] * 9)
    truth = {0b11 << 4 * place for place in range(9)}

    def first_wrong(units: UnitSet) -> Hints:
        return Hints(nodes=(graph.names[next(unit for unit in members(units) if unit % 4 == 1)][0],))

    world = World(graph, monotone(truth), first_wrong, kind=Kind.NUMERIC)
    assert all_found(world.diagnose(brief=True)) == truth
    assert all(size(asked) <= 2 for asked in world.verdicts if world.rule(asked) and asked != graph.everything)


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_a_brief_search_blames_what_fails_and_leaves_what_passes(data: st.DataObject):
    graph = data.draw(dags(distinct=True))
    truth = data.draw(minimal_sets(len(graph)))
    step = World(graph, monotone(truth)).diagnose(brief=True)
    assert all(any(is_subset(one, found) for one in truth) for found in all_found(step))
    assert not any(is_subset(one, step.diagnosis.remainder) for one in truth)
    assert (step.diagnosis.verdict is Status.PASS) == (not truth)


def test_a_brief_search_asks_about_one_place_and_one_remainder():
    graph = chain([0, 1, 2] * 8, solos=list(range(24)))
    pairs = monotone([3 << start for start in range(0, 24, 3)])
    whole, brief = World(graph, pairs), World(graph, pairs)
    assert all_found(brief.diagnose(brief=True)) == all_found(whole.diagnose())
    assert brief.calls <= 14 < whole.calls


def test_a_brief_search_of_a_small_piece_asks_no_small_contexts():
    graph = chain([0, 1, 2, 3, 4, 5])
    whole, brief = World(graph, monotone([1 << 2])), World(graph, monotone([1 << 2]))
    assert all_found(brief.diagnose(brief=True)) == all_found(whole.diagnose()) == {1 << 2}
    assert brief.calls <= 8 < whole.calls


@pytest.mark.parametrize(("ops", "places"), [(5, 8), (10, 4), (40, 1)])
def test_what_failed_before_is_asked_alone_once_the_rest_passes(ops: int, places: int):
    """Silent: a driver knows these answers from before, so of a repaired model two calls tell all of it."""
    count = ops * places
    graph = replace(chain([*range(ops)] * places), doubted=of([*range(1, count, ops), *range(3, count, ops)]))
    world = World(graph, monotone([1 << unit for unit in members(graph.doubted)]))
    world.diagnose()
    asked = [size(units) for units in world.verdicts]
    assert asked[:4] == [count, count - 2 * places, 1, 1]


@pytest.mark.parametrize(
    ("graph", "refused", "most"),
    [
        (chain([0, 1, 2, 3, 4, 5, 6]), [1, 2, 3, 4, 5], 8),
        (chain([0, 1, 2, 3, 4, 5, 6]), [2, 4], 5),
        (universe(range(8), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (3, 7)]), [2, 3, 4, 5, 6, 7], 9),
    ],
)
def test_of_a_list_of_neighbours_those_beside_others_are_asked_in_their_place(
    graph: Universe, refused: list[int], most: int
):
    """Without the others of the list: the whole model, all but the list, each alone, and in place those not adjacent.

    One in its place is enough where none are neighbours. Where they are, fewer calls cannot tell a refused node from
    one that the log lists because of its neighbour (the next test); but a node between listed ones only is alone there.
    """
    truth = {1 << unit for unit in refused}
    world = World(graph, monotone(truth), logger("all", graph, truth))
    step = world.diagnose()
    assert all_found(step) == truth
    assert all(it.certainty is Certainty.CONFIRMED and not it.inferred for it in step.diagnosis.culprits)
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert world.calls <= most


@pytest.mark.parametrize(("count", "refused"), [(6, [1, 3]), (9, [2, 4, 6]), (12, [0, 3, 7, 11])])
def test_ops_that_a_log_names_one_after_the_other_are_asked_in_few_contexts(count: int, refused: list[int]):
    """Beside the k + 1 calls that name them and the k of each alone, five contexts each."""
    graph, truth = chain(range(count)), {1 << unit for unit in refused}
    world = World(graph, monotone(truth), first_offender(graph, refused), fingerprints=True)
    step = world.diagnose()
    demand_all(step, truth)
    assert all(culprit.certainty is Certainty.CONFIRMED for culprit in step.diagnosis.culprits)
    assert world.calls <= 7 * len(refused) + 1


def test_a_log_that_leaves_out_the_domain_names_the_op_all_the_same():
    """TPU-MLIR lists the types of custom ops so; those of the default domain have none to leave out."""
    graph = replace(chain([0, 1, 2, 3, 2, 4]), op=("Relu", "a::One", "b::Two", "Add", "b::Two", "Sin"))

    def calls(write: Callable[[str], str]) -> int:
        def log(units: UnitSet) -> Hints:
            return Hints(ops=tuple(dict.fromkeys(write(graph.op[it]) for it in members(units) if "::" in graph.op[it])))

        world = World(graph, monotone([1 << 1, 1 << 2, 1 << 4]), log, fingerprints=True)
        step = world.diagnose()
        assert all_found(step) == {1 << 1, 1 << 2, 1 << 4}
        assert all(culprit.certainty is Certainty.CONFIRMED for culprit in step.diagnosis.culprits)
        return world.calls

    assert calls(lambda op: op.rpartition("::")[2]) == calls(str) <= 9


def test_an_op_that_is_all_a_log_names_is_asked_with_three_sets_of_the_others():
    """The whole model names it where nothing in front of it is cut, so that is not asked once more."""
    graph = universe(range(7), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 5), (5, 6)])
    truth = {1 << 5}
    world = World(graph, monotone(truth), logger("all", graph, truth))
    step = world.diagnose()
    assert all_found(step) == truth
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert world.calls <= 6


@pytest.mark.parametrize("refused", [[3, 4], [4, 3], [3, 9]])
def test_another_form_of_a_listed_op_that_the_list_passes_over_is_not_asked_alone(refused: list[int]):
    """Alone it fails, for the compiler fuses it with what reads it: then what is asked next is where it compiles."""
    graph = replace(chain(range(20)), op=tuple("Q" if it in (refused[0], 13) else f"V{it}" for it in range(20)))

    def listed(units: UnitSet) -> UnitSet:
        fused = of([13, 14, 15])
        return of(refused) & units | (0 if is_subset(fused, units) else of([13, 14]) & units)

    def log(units: UnitSet) -> Hints:
        return Hints(nodes=tuple(f"n{it}" for it in members(listed(units))))

    world = World(graph, lambda units: bool(listed(units)), log)
    assert all_found(world.diagnose()) == {1 << unit for unit in refused}
    assert world.calls <= 6


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_what_a_list_holds_because_of_a_neighbour_is_not_blamed(data: st.DataObject):
    """A node is refused beside a refused one, and where its other neighbour is cut off: so it fails alone as well."""
    starts = list(itertools.accumulate(data.draw(st.lists(st.integers(5, 9), min_size=1, max_size=4)), initial=2))
    excused_by, refused = {}, []
    for start in starts[:-1]:
        first, last, other = data.draw(st.sampled_from([(start, start + 1, start + 2), (start + 1, start, start - 1)]))
        refused.append(first)
        if data.draw(st.integers(0, 3)):
            excused_by[last] = first, other
    graph = chain(list(range(starts[-1])))
    named_alone = data.draw(st.booleans())

    def refused_in(units: UnitSet) -> UnitSet:
        beside = (unit for unit, (bad, other) in excused_by.items() if units >> bad & 1 or not units >> other & 1)
        return (of(beside) | of(refused)) & units

    def log(units: UnitSet) -> Hints:
        alone = size(units) == 1 and not units & of(refused)
        return (
            Hints() if alone and not named_alone else Hints(nodes=tuple(f"n{it}" for it in members(refused_in(units))))
        )

    step = World(graph, lambda units: bool(refused_in(units)), log).diagnose()
    assert all_found(step) == {1 << unit for unit in refused}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_a_compiler_that_never_answers_ends_the_search():
    class Mute(World):
        def compile(self, units: UnitSet) -> Verdict:
            self.calls += 1
            return Verdict(status=Status.UNRESOLVED)

    step = Mute(chain([0, 1, 0, 2]), monotone([])).diagnose()
    assert step.diagnosis.verdict is Status.UNRESOLVED
    assert step.diagnosis.culprits == ()


def test_too_much_of_it_is_called_capacity_and_a_real_culprit_beside_it_is_still_found():
    graph = chain([unit % 20 for unit in range(100)] + [20])
    step = World(graph, lambda units: size(units) > 60 or bool(units >> 100 & 1)).diagnose(most=60)
    kinds = {culprit.kind: culprit for culprit in step.diagnosis.culprits}
    assert kinds[CulpritKind.SINGLE].units == 1 << 100
    assert size(kinds[CulpritKind.CAPACITY].largest_passing or 0) > 40
    assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_compiler_that_takes_a_few_nodes_only_is_not_said_to_refuse_their_combinations(most: int) -> None:
    """Any choice of one node more fails, and there are dozens of them in a model of eight."""
    step = World(chain([0, 1, 2, 3, 3, 1, 4, 5]), lambda units: size(units) > most).diagnose(most=60)
    [culprit] = step.diagnosis.culprits
    assert culprit.kind is CulpritKind.CAPACITY
    assert size(culprit.largest_passing or 0) == most


@pytest.mark.parametrize(
    ("variants", "edges", "adjacent", "both"),
    [
        ([0, 1, 1, 0], [(0, 1), (1, 2), (2, 3), (0, 3)], {(1, 1), (0, 1)}, {(0, 1)}),
        ([0, 0, 1, 1], [(0, 1), (0, 2), (1, 2), (2, 3)], {(1, 0), (1, 1), (0, 0)}, {(0, 1)}),
        ([0, 1, 0, 1, 0, 2], [(0, 2), (1, 3), (2, 5), (4, 5)], set(), {(0, 1)}),
        ([0, 1, 2, 3, 1, 3], [(1, 2), (1, 4), (2, 4)], {(2, 3), (2, 0)}, {(0, 1), (2, 3)}),
        ([0, 1, 0, 0, 1], [(0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 3)], {(1, 0), (0, 0)}, set()),
        ([0, 1, 0, 1, 0, 1, 0, 2], [(0, 2), (1, 3), (2, 7), (4, 7)], set(), {(0, 1)}),
    ],
)
def test_a_small_model_most_pairs_of_which_are_refused_is_not_called_too_large(variants, edges, adjacent, both) -> None:
    graph = universe(variants, edges)

    def rule(units: UnitSet) -> bool:
        ops = {graph.variant[unit] for unit in members(units)}
        fed = ((unit, after) for unit in members(units) for after in members(graph.successors[unit] & units))
        return any({*pair} <= ops for pair in both) or any(
            (graph.variant[unit], graph.variant[after]) in adjacent for unit, after in fed
        )

    step = World(graph, rule).diagnose()
    assert all_found(step) == minimal_failing_sets(len(graph), rule)
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_several_patterns_of_as_many_ops_are_not_called_capacity() -> None:
    truth = {0b111, 0b111000, 0b111000000, 0b111000000000}
    step = World(chain(list(range(14))), monotone(truth)).diagnose()
    assert all_found(step) == truth
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_an_op_that_is_refused_at_one_shape_only_is_not_blamed_at_the_others():
    solos = [0, 1, 2, 3, 2, 1, 4, 2]
    graph = chain([0, 1, 1, 2, 1, 1, 3, 1], solos)
    step = World(graph, lambda units: any(solos[unit] == 2 for unit in members(units))).diagnose()
    assert all_found(step) == {1 << 2, 1 << 4, 1 << 7}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def layers(count: int) -> Universe:
    """Blocks of 12 units with a residual edge, and a stem and a head of their own."""
    block = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    variants = [0, *block * count, 13]
    edges = [(unit, unit + 1) for unit in range(len(variants) - 1)]
    edges += [(1 + 12 * layer, 12 + 12 * layer) for layer in range(count)]
    return universe(variants, edges)


@pytest.mark.parametrize("pair", [False, True])
def test_24_identical_layers_cost_at_most_3_calls_more_than_one(pair):
    def calls(count: int) -> tuple[int, int]:
        graph = layers(count)

        def rule(units: UnitSet) -> bool:
            if not pair:
                return any(graph.variant[unit] in (5, 9) for unit in members(units))
            return any(
                graph.variant[unit] == 5 and graph.variant[after] == 6
                for unit in members(units)
                for after in members(graph.successors[unit] & units)
            )

        world = World(graph, rule, alike=True)
        step = world.diagnose()
        assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
        return world.calls, len(all_found(step))

    (one, found_in_one), (many, found_in_many) = calls(1), calls(24)
    assert found_in_many == 24 * found_in_one
    assert many <= one + 3


def reference(count: int, kinds: int, bad: int, seed: int) -> tuple[Universe, set[int]]:
    chance = random.Random(seed)
    drawn = [chance.randrange(kinds) for _ in range(count)]
    numbers = {variant: index for index, variant in enumerate(dict.fromkeys(drawn))}
    graph = chain([numbers[variant] for variant in drawn])
    return graph, set(chance.sample(range(len(numbers)), bad))


def _hits(truth):
    return lambda units: bool(units & truth)


@pytest.mark.parametrize(
    ("count", "kinds", "bad"),
    [
        (1000, 60, 4),
        pytest.param(1000, 60, 10, marks=pytest.mark.long),
        pytest.param(3000, 200, 6, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("hinted", [False, True])
def test_calls_stay_near_what_information_theory_asks_for(count, kinds, bad, hinted):
    spent = []
    for seed in range(8):
        graph, culprits = reference(count, kinds, bad, seed)
        truth = of(unit for unit, variant in enumerate(graph.variant) if variant in culprits)
        log = first_offender(graph, culprits) if hinted else silent
        world = World(graph, _hits(truth), log, fingerprints=hinted)
        step = world.diagnose()
        assert all_found(step) == {1 << unit for unit in members(truth)}
        assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
        spent.append(world.calls)
    asked_for = math.log2(math.comb(kinds, bad)) + bad + 1
    assert mean(spent) <= (2 * bad + 6 if hinted else 1.15 * asked_for + 4)


@pytest.mark.parametrize("pair", [(10, 200), (133, 380), (370, 397)])
def test_ops_are_not_asked_alone_once_an_interaction_is_likelier(pair: tuple[int, int]) -> None:
    """Asking each op of the last failing group alone takes two calls more."""
    variants = [unit % 38 for unit in range(400)]
    variants[pair[0]], variants[pair[1]] = 38, 39
    world = World(chain(variants), monotone([of(pair)]))
    assert all_found(world.diagnose()) == {of(pair)}
    assert world.calls <= 14


def test_the_next_pair_of_ops_far_apart_is_found_in_fewer_calls() -> None:
    """After the first pair, only the largest ball is asked around an op that fails with what passed."""
    units = [20, 60, 90, 310, 350, 390]
    variants = [unit % 34 for unit in range(400)]
    for op, unit in enumerate(units, 34):
        variants[unit] = op
    pairs = {1 << before | 1 << after for before, after in zip(units[:3], units[3:], strict=True)}
    world = World(chain(variants), monotone(pairs))
    assert all_found(world.diagnose()) == pairs
    assert world.calls <= 40


def test_advertised_ops_are_believed_first_and_checked_all_the_same():
    lacking = {5, 17, 30}
    ops = frozenset(f"V{op}" for op in range(40) if op not in lacking)
    graph = replace(chain([unit % 40 for unit in range(400)]), advertised=ops)
    honest = World(graph, lambda units: any(graph.variant[unit] in lacking for unit in members(units)))
    assert len(honest.diagnose().diagnosis.culprits) == 3
    assert honest.calls <= 8
    lying = World(graph, lambda units: any(graph.variant[unit] in (3, 30) for unit in members(units)))
    step = lying.diagnose()
    assert {graph.variant[culprit.units.bit_length() - 1] for culprit in step.diagnosis.culprits} == {3, 30}


def test_more_workers_need_fewer_rounds_and_come_to_the_same_diagnosis():
    graph, culprits = reference(1000, 60, 4, 1)
    truth = of(unit for unit, variant in enumerate(graph.variant) if variant in culprits)
    one, many = (World(graph, lambda units: bool(units & truth)) for _ in range(2))
    assert all_found(one.diagnose(1)) == all_found(many.diagnose(16))
    assert many.rounds * 2 < one.rounds


@given(st.data(), dags(), st.sampled_from(LOGS), st.sampled_from([2, 4, 16]))
@settings(max_examples=examples(60))
def test_the_number_of_workers_changes_no_word_about_a_culprit(data, graph, kind, width):
    rule = data.draw(structural_rules(graph))
    log = logger(kind, graph, minimal_failing_sets(len(graph), rule))
    alone, together = World(graph, rule, log).diagnose(), World(graph, rule, log).diagnose(width)
    assert together.diagnosis.culprits == alone.diagnosis.culprits


def test_what_a_dtype_drags_along_is_asked_with_it():
    """Unit 3 takes no cut at its input, so unit 2 comes with it, and what is bad is still told apart."""
    graph = replace(chain([0, 1, 2, 3, 4, 5]), required_producers={3: 1 << 2})
    world = World(graph, monotone([1 << 3, 1 << 5]))
    step = world.diagnose()
    assert all(units & 1 << 2 for units in world.verdicts if units & 1 << 3)
    assert all_found(step) == {1 << 3, 1 << 5}


@pytest.mark.parametrize("along", [1 << 2, 1 << 1 | 1 << 2], ids=["direct", "both"])
def test_what_must_come_along_is_blamed_for_itself(along: UnitSet) -> None:
    """Unit 3 fails alone, too, since unit 2 comes with it; once unit 2 is masked, it does not."""
    graph = replace(chain([0, 1, 2, 3, 4, 5]), required_producers={2: 1 << 1, 3: along})
    step = World(graph, monotone([1 << 2])).diagnose()
    assert all_found(step) == {1 << 2}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_a_culprit_is_handed_out_with_what_must_come_along():
    graph = replace(chain([0, 1, 2, 3, 4, 5]), required_producers={2: 1 << 1, 3: 1 << 2})
    [culprit] = World(graph, monotone([1 << 3])).diagnose().diagnosis.culprits
    assert culprit.units == 1 << 3
    assert culprit.evidence.own == 0b1110


@given(st.data(), dags(), st.sampled_from(LOGS[:3]))
@settings(max_examples=examples(100))
def test_bad_units_are_found_whatever_must_come_along(data: st.DataObject, graph: Universe, kind: str) -> None:
    """Units of one variant may differ by what makes what they take."""
    needs = {
        unit: of(data.draw(st.sets(st.sampled_from(sorted(members(before))), min_size=1)))
        for unit, before in enumerate(graph.predecessors)
        if before and data.draw(st.booleans())
    }
    graph = split_variants_by_producers(replace(graph, required_producers=needs))
    # of a compiler that takes nothing at all the search gives up
    bad = data.draw(st.sets(st.sampled_from(graph.solo), max_size=3)) - {graph.solo[0]}
    truth = {1 << unit for unit, solo in enumerate(graph.solo) if solo in bad}
    step = World(graph, monotone(truth), logger(kind, graph, truth)).diagnose()
    assert all_found(step) == truth
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


@pytest.mark.parametrize("ops", [4, 6, 12])
def test_a_command_that_refuses_everything_is_found_out_whatever_the_size_of_the_model(ops: int) -> None:
    """As a wrong path does: a search that believed it would put every op into every context."""
    step = World(chain([unit % ops for unit in range(12)]), bool).diagnose(most=12)
    assert all_found(step) == set()
    assert any("check that the compiler itself works" in unknown for unknown in step.diagnosis.certificate.unknown)


def test_three_ops_that_all_are_refused_are_culprits() -> None:
    """Of so small a model that may well be so."""
    step = World(chain([0, 1, 2, 0]), bool).diagnose()
    assert all_found(step) == {1 << unit for unit in range(4)}


@pytest.mark.parametrize("bad", [0, 17, 39])
def test_halves_end_where_nearly_everything_comes_along(bad: int) -> None:
    """Each needs the one before: half of the variants, with what they need, may be all of them."""
    variants = [3 if unit == bad else unit % 3 for unit in range(40)]
    numbers = {variant: number for number, variant in enumerate(dict.fromkeys(variants))}
    needs = {unit: 1 << unit - 1 for unit in range(1, 40)}
    graph = replace(chain([numbers[variant] for variant in variants]), required_producers=needs)
    step = World(graph, monotone([1 << bad])).diagnose(most=100)
    assert all_found(step) == {1 << bad}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def gelu(ops: str) -> tuple[Universe, Rule]:
    """A chain in which E is refused unless it stands between D and A, and X always."""
    numbers = {op: index for index, op in enumerate(dict.fromkeys(ops))}
    graph = chain([numbers[op] for op in ops])

    def rule(units: UnitSet) -> bool:
        inside = "".join(op if units >> unit & 1 else " " for unit, op in enumerate(ops))
        return "X" in inside or inside.count("E") > inside.count("DEA")

    return graph, rule


@pytest.mark.parametrize("hinted", [False, True])
def test_an_op_that_is_fused_in_most_places_is_blamed_only_where_it_is_not(hinted):
    graph, rule = gelu("RDEARSETDEAB")
    log = (lambda _: Hints(ops=(graph.op[2],))) if hinted else silent
    step = World(graph, rule, log, fingerprints=hinted).diagnose()
    assert all_found(step) == {1 << 6}
    assert [artefact.occurrences for artefact in step.diagnosis.needs_context] == [(1 << 2, 1 << 9)]
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_what_only_needs_its_context_is_named_with_the_group_that_passes():
    graph, rule = gelu("RDEARSXTDEAB")
    step = World(graph, rule, lambda _: Hints(ops=(graph.op[2],))).diagnose()
    assert all_found(step) == {1 << 6}
    [artefact] = step.diagnosis.needs_context
    assert artefact.passes_with is not None
    assert not rule(artefact.passes_with)
    assert artefact.units & artefact.passes_with
    assert size(artefact.passes_with) < 8


@pytest.mark.parametrize("status", [Status.UNRESOLVED, Status.FAIL])
def test_a_compiler_that_answers_everything_alike_is_asked_few_questions(status):
    class Broken(World):
        def compile(self, units: UnitSet) -> Verdict:
            self.calls += 1
            return Verdict(status=status, fingerprint="license expired")

    world = Broken(chain(range(60)), monotone([]))
    diagnosis = world.diagnose().diagnosis
    assert world.calls <= 20
    assert diagnosis.culprits == ()
    assert diagnosis.certificate.status is CertificateStatus.BOUNDED


def test_a_culprit_whose_context_gets_no_answer_is_only_suspected():
    graph = chain(range(10))

    class Stalling(World):
        def compile(self, units: UnitSet) -> Verdict:
            if units == graph.everything & ~(1 << 7):
                return Verdict(status=Status.UNRESOLVED)
            return super().compile(units)

    step = Stalling(graph, monotone([1 << 3, 1 << 7])).diagnose()
    assert {culprit.units: culprit.certainty for culprit in step.diagnosis.culprits}[1 << 3] is Certainty.SUSPECTED
    assert step.diagnosis.needs_context == ()
    assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED


@pytest.mark.parametrize("width", [1, 4])
def test_many_refused_ops_are_no_broken_compiler(width):
    """Ten ops fail alone without a word before anything passed, and are all named."""
    graph = replace(chain(range(40)), advertised=frozenset(f"V{op}" for op in range(40) if op % 4))
    step = World(graph, lambda units: any(unit % 4 == 0 for unit in members(units))).diagnose(width)
    assert all_found(step) == {1 << unit for unit in range(0, 40, 4)}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


@pytest.mark.parametrize("width", [4, 16])
def test_workers_compile_little_of_a_model_before_it_has_failed(width):
    """It may compile, and its log may name all that is wrong."""
    graph = chain(range(40))
    compiles = World(graph, lambda units: False)
    assert compiles.diagnose(width).diagnosis.verdict is Status.PASS
    assert compiles.calls <= 4

    named = World(graph, monotone([1 << 7, 1 << 20]), log=first_offender(graph, [7, 20]))
    assert all_found(named.diagnose(width)) == {1 << 7, 1 << 20}
    assert named.calls <= 2 * 5  # one worker makes five


def test_parts_of_one_fused_pattern_that_fail_alone_excuse_each_other():
    """P and Q are refused unless P feeds Q; both are masked at once, and neither is to blame. X is."""
    ops = "ABPQCDPQEXFPQG"
    numbers = {op: index for index, op in enumerate(dict.fromkeys(ops))}
    graph = chain([numbers[op] for op in ops])

    def rule(units: UnitSet) -> bool:
        inside = "".join(op if units >> unit & 1 else " " for unit, op in enumerate(ops))
        return "X" in inside or not inside.count("P") == inside.count("Q") == inside.count("PQ")

    step = World(graph, rule, lambda _: Hints(ops=tuple(graph.op[ops.index(op)] for op in "PQX"))).diagnose()
    assert all_found(step) == {1 << 9}
    assert {graph.op[artefact.units.bit_length() - 1] for artefact in step.diagnosis.needs_context} == {"V2", "V3"}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_too_many_pairs_to_try_every_way_are_still_told_apart():
    pairs = {1 << 2 * pair | 1 << 2 * pair + 1 for pair in range(8)}
    step = World(chain(range(20)), monotone(pairs)).diagnose()
    assert all_found(step) == pairs
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert TWO in step.diagnosis.certificate.assumes


@pytest.mark.parametrize("each", [2, 5, 16])
def test_ops_that_fail_together_anywhere_are_not_asked_in_every_combination(each):
    """A and B, which use one resource, each at shapes of its own: one call for each unit, not for each pair."""
    ops = [number % 7 for number in range(8 * each)]
    ops[::8], ops[4::8] = [7] * each, [8] * each
    graph = chain(ops, list(range(len(ops))))
    ones, others = (of(unit for unit, op in enumerate(ops) if op == wanted) for wanted in (7, 8))
    world = World(graph, lambda units: bool(units & ones) and bool(units & others))
    diagnosis = world.diagnose().diagnosis
    pairs = {1 << one | 1 << other for one in members(ones) for other in members(others)}
    assert {units for culprit in diagnosis.culprits for units in culprit.occurrences} == pairs
    assert {culprit.certainty for culprit in diagnosis.culprits} == {Certainty.CONFIRMED}
    assert diagnosis.certificate.status is CertificateStatus.PROVEN
    assert (COMBINED in diagnosis.certificate.assumes) == (each > 4)
    assert world.calls <= 60 + 2 * each


@given(st.integers(0, 1000))
@settings(max_examples=examples(20))
def test_a_combination_that_passes_is_never_said_to_fail(seed):
    """Two ops fail together where at most so many units lie between them: what passed is no place of the culprit."""
    chance = random.Random(seed)
    ops = [*range(8), *(chance.randrange(6) for _ in range(42))]
    for unit in chance.sample(range(8, 50), 14):
        ops[unit] = chance.choice([6, 7])
    graph, reach = chain(ops, list(range(50))), chance.choice([3, 8, 20, 50])

    def rule(units: UnitSet) -> bool:
        ones, others = ([unit for unit in members(units) if ops[unit] == wanted] for wanted in (6, 7))
        return any(abs(one - other) <= reach for one in ones for other in others)

    world = World(graph, rule)
    diagnosis = world.diagnose().diagnosis
    passed = [units for units, answers in world.verdicts.items() if answers[0].passed]
    for culprit in diagnosis.culprits:
        if culprit.certainty is Certainty.CONFIRMED:
            assert not any(culprit.held_by(probe) for probe in passed)


def test_one_unit_that_its_sizes_make_refused_is_found_by_halving() -> None:
    """60 units of one op, each of another size, of which one or two are refused: never one unit fewer at a time."""
    count = 60
    model = replace(chain([0] * count, range(count)), weightless=(0,) * count)
    for others, most in (((), 26), ((17,), 33)):
        for first in range(0, count, 4):
            bad = {first, *((first + other) % count for other in others)}
            world = World(model, monotone(1 << unit for unit in bad))
            diagnosis = world.diagnose(most=2 * count).diagnosis
            assert {it.units for it in diagnosis.culprits} == {1 << unit for unit in bad}
            assert world.calls <= most


@pytest.mark.parametrize(("ops", "multiplied"), [(3, True), (12, False)])
def test_of_many_ops_that_are_counted_each_is_thinned_without_all_combinations(ops: int, multiplied: bool):
    """Each op keeps its first units in one file and its last ones in another; 2**12 files would be no search."""
    graph = chain([unit % ops for unit in range(5 * ops)])
    pools = graph.variant_members
    suspects = [
        Suspect(units=of(list(members(pool))[:3]), fails=0, occurrences=(tuple(members(pool))[:3],), pool=pool)
        for pool in pools
    ]
    ways, _, cut_short = ways_to_break(graph, suspects)
    assert (len(ways) == 2**ops) == multiplied
    assert cut_short != multiplied
    for pool in pools:
        units = list(members(pool))
        assert {pool & ~way for way in ways} >= {of(units[:2]), of(units[-2:])}


@pytest.mark.parametrize(("seed", "most"), [(1, 41), (10, 41), (32, 36), (39, 40)])
def test_a_culprit_that_was_found_is_found_again_without_a_probe(seed: int, most: int):
    """Each replay finds the first pattern anew, while larger parts pass that lack two units of it and more."""
    drawn = random.Random(seed)
    variants = [*range(15), *drawn.choices(range(15), k=45)]
    drawn.shuffle(variants)
    graph = chain(variants)
    one, other = drawn.sample(range(2, 54), 2)
    truth = {of(range(one, one + 3)), of(range(other, other + 4))}
    world = World(graph, monotone(truth))
    step = world.diagnose()
    assert all_found(step) >= truth
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert world.calls <= most


@pytest.mark.parametrize(
    ("lengths", "least", "exhaustive"), [((2, 5), 6, False), ((4, 4), 8, False), ((12,), 12, True)]
)
def test_of_many_ways_to_break_patterns_up_so_many_are_tried_as_keep_any_two_units_together(
    lengths: tuple[int, ...], least: int, exhaustive: bool
):
    """Patterns of 2 and 5 units have 10 ways, and of 4 and 4 units 16; 12 of one pattern leave out one unit each."""
    graph = chain(range(40))
    patterns = [of(range(10 * index, 10 * index + length)) for index, length in enumerate(lengths)]
    suspects = [Suspect(units=it, fails=it, occurrences=(tuple(members(it)),)) for it in patterns]
    ways, every, cut_short = ways_to_break(graph, suspects)
    assert len(ways) <= least
    assert (every, cut_short) == (exhaustive, False)
    units = union(patterns)
    for pattern in patterns:
        assert {way & pattern for way in ways} == {1 << unit for unit in members(pattern)}
        assert all(pattern & way for way in ways)
    for one, other in combinations(members(units), 2):
        both = of((one, other))
        assert both in patterns or any(not way & both for way in ways)


def test_two_connected_interactions_make_another_one_likelier():
    """Of 40 ops 30 pass, and fail with the last 10, of which one may be bad or part of an interaction."""
    atoms = [Atom(1 << unit, unit) for unit in range(40)]
    weights = dict.fromkeys(atoms, 1.0)
    chances = []
    for found in range(1, 4):
        odds = BlameOdds(weights, {}, passing=30, interactions=found)
        odds.observe(atoms[:30], [], atoms[30:])
        chances.append(odds.interaction(atoms[30:]))
    assert chances == sorted(set(chances))
