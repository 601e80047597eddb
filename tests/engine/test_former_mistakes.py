"""The smallest compilers about which earlier versions said something false, and what is true of them."""

import random
from dataclasses import replace
from itertools import combinations, count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnxbisect.cut import split_variants_by_producers
from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind
from onnxbisect.search import plan
from onnxbisect.search.oracle import Oracle
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Status, Verdict
from support.engine.judging import Log, Run, judge
from support.engine.rule_worlds import Behaviour, RuleWorld, world
from support.engine.worlds import Rule, World, all_found, chain, monotone, universe
from support.examples import examples


def test_a_second_pattern_between_occurrences_of_the_first_is_not_missed():
    """A feeds B in five blocks, and B feeds the A after the next block: no two of those stand in alternating blocks."""
    edges = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (1, 4), (3, 6), (5, 8)]
    refused = {of(edge) for edge in edges}
    step = World(universe([0, 1] * 5, edges), monotone(refused)).diagnose()
    assert all_found(step) == refused
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_every_failing_probe_holds_a_reported_culprit():
    edges = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5), (5, 6), (6, 7), (6, 8), (7, 8)]
    refused = {of(units) for units in ([0, 1, 2], [0, 2, 3], [3, 4, 5], [2, 3, 6], [0, 5, 6], [3, 5, 6], [6, 7, 8])}
    one = World(universe([0, 1, 2] * 3, edges), monotone(refused))
    step = one.diagnose()
    assert all_found(step) == refused
    for units, answers in one.verdicts.items():
        assert answers[0].failed == any(culprit.held_by(units) for culprit in step.diagnosis.culprits)


def silu() -> tuple[Universe, int]:
    """Conv, Sigmoid, Mul, Conv, Mul: Sigmoid and Mul are one instruction; neither exists by itself."""
    return universe([0, 1, 2, 0, 2], [(0, 1), (1, 2), (2, 3), (3, 4)]), 1 << 4


def test_a_fused_pair_of_ops_that_are_each_refused_alone_is_innocent():
    graph, lone = silu()

    def rule(units: UnitSet) -> bool:
        return bool(units & lone) or (units & 0b110) in (0b010, 0b100)

    step = World(graph, rule).diagnose()
    assert all_found(step) == {lone}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert {group.units for group in step.diagnosis.needs_context} == {0b010, 0b100}


@pytest.mark.parametrize(
    ("variants", "needy", "pair"),
    [
        ([0, 1, 2, 0, 3, 3, 2, 4, 1, 3, 3, 0, 3, 2, 1], (2, 6, 13), (7, 8)),
        ([0, 1, 2, 1, 0, 0, 2, 0, 1, 0, 1, 2, 3, 4, 1, 2, 1, 2], (2, 6, 11, 15, 17), (12, 13)),
    ],
)
def test_a_pair_is_put_back_without_another_that_shares_a_unit_with_it(
    variants: list[int], needy: tuple[int, ...], pair: tuple[int, int]
) -> None:
    """One op is refused where it is cut from what it reads. Cut so beside the pair it looks like another pair, and the
    whole model, which holds both, told that one in its context.
    """

    def rule(units: UnitSet) -> bool:
        return is_subset(of(pair), units) or any(units >> it & 1 and not units >> it - 1 & 1 for it in needy)

    step = World(chain(variants), rule).diagnose()
    assert {it.units for it in step.diagnosis.culprits if it.certainty is Certainty.CONFIRMED} == {of(pair)}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_a_place_is_no_fact_where_the_log_named_it_without_the_suspect_beside_it():
    """V1 feeding V2 is one instruction, and each is refused elsewhere. Cut off from the other, each is named, too."""
    graph = chain([0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 10, 2, 11])
    fused, to_blame = 0b110, of([9, 12])

    def refused(units: UnitSet) -> UnitSet:
        return units & (to_blame if is_subset(fused, units) else to_blame | fused)

    def log(units: UnitSet) -> Hints:
        first = lowest(refused(units))
        return Hints(ops=(graph.op[first],), nodes=graph.names[first])

    one = World(graph, lambda units: bool(refused(units)), log)
    culprits = one.diagnose().diagnosis.culprits
    assert [culprit.certainty for culprit in culprits] == [Certainty.CONFIRMED] * 2
    assert union(union(culprit.occurrences) & ~culprit.inferred for culprit in culprits) == to_blame
    assert one.calls <= 9


@pytest.mark.parametrize("places", [(4,), (4, 14)])
def test_a_piece_of_the_remainder_that_is_refused_for_what_was_cut_blames_no_suspect(places):
    """V5 is refused behind the refused V4, and without V6, alone in other words; V9, four steps away, without V10."""
    tail = [4, 5, 6, *range(14, 19)] if len(places) > 1 else range(14, 20)
    graph = chain([*range(14), *tail])

    def refused(units: UnitSet) -> UnitSet:
        found = units & of(places)
        for after in (place + 1 for place in places):
            if units >> after & 1 and (found >> after - 1 & 1 or not units >> after + 1 & 1):
                found |= 1 << after
        return found | (units & 1 << 9 if not units >> 10 & 1 else 0)

    def log(units: UnitSet) -> Hints:
        if size(units) == 1 and units & graph.variant_members[5]:
            return Hints()
        return Hints(nodes=tuple(graph.names[unit][0] for unit in members(refused(units))))

    one = World(graph, lambda units: bool(refused(units)), log)
    step = one.diagnose()
    assert all_found(step) == {1 << place for place in places}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert one.calls <= 13


def test_a_log_that_names_an_excused_op_does_not_make_it_a_suspect_again():
    """V0 is refused without V1, and with V2; the log names it in either case."""

    def rule(units: UnitSet) -> bool:
        return bool(units & 0b001) and (not units & 0b010 or bool(units & 0b100))

    step = World(universe([0, 1, 2], [(0, 1)]), rule, lambda _: Hints(ops=("V0",), nodes=("n0",))).diagnose()
    assert all_found(step) == {0b101}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_half_of_a_pair_is_not_blamed_for_what_both_do():
    """V0 is refused alone, V0 feeding V1 is fused and fine, V0 together with any V2 is refused."""

    def rule(units: UnitSet) -> bool:
        return bool(units & 1) and (not units & 0b010010 or bool(units & 0b101100))

    step = World(chain([0, 1, 2, 2, 1, 2]), rule).diagnose()
    assert all_found(step) == {0b000101, 0b001001, 0b100001}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_an_op_refused_in_every_block_is_confirmed_where_blocks_stand_at_the_ends():
    """The places have the same neighbours, but what lies further away differs: the whole model blames none of them."""
    graph = chain([0, 1, 2, 0, 1, 0, 3, 4] * 3)
    refused = graph.variant_members[3]
    step = World(graph, lambda units: bool(units & refused)).diagnose()
    (culprit,) = step.diagnosis.culprits
    assert (union(culprit.occurrences), culprit.certainty) == (refused, Certainty.CONFIRMED)


@pytest.mark.long
@pytest.mark.parametrize("behaviour", [Behaviour.FUSION, Behaviour.EXCUSE])
def test_the_number_of_workers_changes_no_culprit_of_a_compiler_that_is_not_monotone(behaviour):
    for seed in range(8):
        found = []
        for width in (1, 4, 16):
            diagnosis = Run(world=world(behaviour, seed), log=Log.SILENT).diagnose(width)
            found.append([(culprit.units, culprit.occurrences) for culprit in diagnosis.culprits])
        assert found[0] == found[1] == found[2], seed


def fused_in_threes_that_need_not_touch(units: UnitSet) -> bool:
    """V0 is refused but in three, two of which are 2 -> 3 or 5 -> 6; and 2 -> 3 is refused with 0, 4 or 5."""
    fused = size(units) >= 3 and any(is_subset(pair, units) for pair in (0b0001100, 0b1100000))
    return not fused or (is_subset(0b0001100, units) and bool(units & 0b0110001))


def fused_in_neighbouring_pairs(units: UnitSet) -> bool:
    """V0 is refused without another one beside it, and three in a row are refused."""
    beside = units << 1 | units >> 1
    return bool(units & ~beside) or bool(units & units >> 1 & units >> 2)


@pytest.mark.parametrize(
    ("graph", "rule"),
    [
        (universe([0] * 7, [(2, 3), (5, 6)], [0, 1, 1, 0, 0, 0, 1]), fused_in_threes_that_need_not_touch),
        (chain([0] * 5, [0, 0, 0, 0, 1]), fused_in_neighbouring_pairs),
    ],
)
def test_four_workers_state_what_one_states_and_only_what_is_true(graph: Universe, rule: Rule):
    failing = sum(1 << units for units in range(graph.everything + 1) if rule(units))
    it = RuleWorld(behaviour=Behaviour.FUSION, seed=0, universe=graph, failing=failing, planted=(), words="a pattern")
    runs = [Run(world=it) for _ in range(3)]
    diagnoses = [run.diagnose(width) for run, width in zip(runs, (1, 4, 16), strict=True)]
    assert diagnoses[0].culprits == diagnoses[1].culprits == diagnoses[2].culprits
    assert not judge(runs[0], diagnoses[0]).false_facts


def test_nothing_is_asked_about_no_node_at_all():
    """The log of the whole model names each node, so all but these are none; the compiler is down at that time."""
    run = Run(world=world(Behaviour.WINDOW, 34), log=Log.EVERY_NODE)
    run.diagnose()
    assert 0 not in run.verdicts


def test_a_small_model_is_proven_only_after_all_ways_to_break_its_patterns():
    """Three of thirteen sets of four are in no set that leaves out only pairs of them (`breaks`)."""
    run = Run(world=world(Behaviour.MONOTONE, 274), log=Log.SILENT)
    diagnosis = run.diagnose()
    assert diagnosis.certificate.status is CertificateStatus.PROVEN
    assert not judge(run, diagnosis).missed


def test_five_failures_in_nine_answers_are_no_answer():
    answers = tuple(Verdict(status=status) for status in (Status.FAIL, Status.PASS) * 4 + (Status.FAIL,))
    verdict = Oracle(chain([0, 1]), {0b11: answers}).look(0b11)
    assert verdict is not None
    assert verdict.status is Status.UNRESOLVED


def test_no_pair_that_a_flaky_compiler_failed_five_times_in_nine_is_an_occurrence():
    """A fifth of the answers is wrong; 2 and 3, which are fine together, fail in five of nine."""
    truth = {of((one, other)) for one in (0, 1) for other in (2, 3, 4)}
    graph = chain([0] * 5, [0, 0, 1, 1, 1])
    one = World(graph, monotone(truth), flaky=0.2, seed=9)
    step = one.diagnose(recheck=True)
    assert [answer.failed for answer in one.verdicts[0b01100]].count(True) == 5
    assert all_found(step) == truth
    assert all(culprit.certainty is not Certainty.CONFIRMED for culprit in step.diagnosis.culprits)


def test_one_wrong_failure_of_what_is_left_is_asked_again():
    """The rest of the model fails once, and never again; the true culprit is V3."""
    graph = chain(range(10))
    rest = graph.everything & ~(1 << 3)

    class Slipping(World):
        def compile(self, units: UnitSet) -> Verdict:
            slips = units == rest and not self.verdicts.get(units)
            return Verdict(status=Status.FAIL) if slips else super().compile(units)

    step = Slipping(graph, monotone([1 << 3])).diagnose()
    assert all_found(step) == {1 << 3}


def test_one_op_at_eight_shapes_is_a_culprit_and_no_broken_compiler():
    step = World(chain([0] * 8, list(range(8))), lambda units: bool(units)).diagnose()
    assert all_found(step) == {1 << unit for unit in range(8)}


@pytest.mark.parametrize("length", [6, 7, 9, 12])
def test_a_pattern_is_found_whatever_its_length(length: int):
    """Blocks of 20 ops, 12 times; some neighbours in each fail together, as where a fusion pass crashes."""
    graph = chain([unit % 20 for unit in range(240)])
    refused = {of(range(block + 4, block + 4 + length)) for block in range(0, 240, 20)}
    one = World(graph, monotone(refused))
    step = one.diagnose()
    assert all_found(step) == refused
    assert [culprit.kind for culprit in step.diagnosis.culprits] == [CulpritKind.INTERACTION]
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_a_model_that_is_nothing_but_a_pattern_is_not_too_large():
    step = World(chain(range(7)), lambda units: size(units) == 7).diagnose()
    [culprit] = step.diagnosis.culprits
    assert culprit.kind is CulpritKind.INTERACTION
    assert culprit.certainty is Certainty.CONFIRMED


@pytest.mark.parametrize("allowed", [2, 4])
def test_a_count_of_an_op_is_found_as_what_it_is(allowed: int):
    """A target that takes so many of one op, which stands in 24 layers of 20 ops."""
    graph = chain([unit % 20 for unit in range(480)])
    counted = of(range(3, 480, 20))
    one = World(graph, lambda units: size(units & counted) > allowed, alike=True)
    step = one.diagnose(most=60)
    [culprit] = step.diagnosis.culprits
    assert culprit.kind is CulpritKind.COUNT
    assert culprit.among == counted
    assert size(culprit.units) == allowed + 1
    if allowed == 2:
        assert one.calls <= 20


def test_a_pair_with_an_op_of_which_there_are_too_many_is_not_missed():
    """At most one V0, and no V0 before V2: the only V0 there is neither the first in the model nor the last."""
    graph = chain([0, 0, 1, 0, 2, 3, 4, 0, 5, 6])
    pairs = {of([3, 4]), of([4, 5])}
    step = World(graph, lambda units: size(units & of([0, 1, 3, 7])) > 1 or monotone(pairs)(units)).diagnose()
    assert {culprit.units for culprit in step.diagnosis.culprits if not culprit.among} == pairs
    assert [culprit.among for culprit in step.diagnosis.culprits if culprit.among] == [of([0, 1, 3, 7])]
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


@pytest.mark.parametrize("named", [False, True])
def test_refused_ops_that_read_the_same_tensor_are_all_confirmed(named):
    """Four variants of one op read what unit 6 makes: each pair of them is asked, for it may be one instruction."""
    edges = [*((unit, unit + 1) for unit in range(6)), *((6, op) for op in (7, 8, 9, 10))]
    edges += [*((op, op + 4) for op in (7, 8, 9, 10)), *((op, 15) for op in (11, 12, 13, 14))]
    graph = universe(list(range(16)), edges)
    refused = of([7, 8, 9, 10])

    def log(units: UnitSet) -> Hints:
        return Hints(ops=tuple(graph.op[unit] for unit in members(units & refused))) if named else Hints()

    step = World(graph, lambda units: bool(units & refused), log).diagnose()
    assert [culprit.certainty for culprit in step.diagnosis.culprits] == [Certainty.CONFIRMED] * 4
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def test_a_pair_is_not_blamed_where_half_of_it_was_cut_from_what_it_is_fused_with():
    """V0 is refused unless it feeds V0; the unit 0, which does, is refused with V1, and other units are not."""
    run = Run(world=world(Behaviour.FUSION, 0), log=Log.FIRST_OFFENDER)
    assert not judge(run, run.diagnose()).false_facts


@pytest.mark.parametrize(
    ("behaviour", "seed", "log"),
    [
        (Behaviour.WEAK, 265, Log.SILENT),  # two units that are each refused without a neighbour, which both lack
        (Behaviour.FUSION, 288, Log.SILENT),  # a half of a fused pattern, beside ops that have no part in it
        (Behaviour.EXCUSE, 390, Log.FIRST_OFFENDER),  # excused from three steps away, where all that near fails anyhow
        (Behaviour.FUSION, 2460, Log.FIRST_OFFENDER),  # a fused pattern of four in a row, next to another refused op
        (Behaviour.CUT, 412, Log.FIRST_OFFENDER),  # a pair that fails where it is cut, and an op beside it
        (Behaviour.TYPES, 12, Log.SILENT),  # a pair with a third op; the pair passes where another culprit is complete
        (Behaviour.TYPES, 20, Log.SILENT),  # an op that fails unless nothing is cut in front of it
        (Behaviour.TYPES, 20, Log.FIRST_OFFENDER),
        (Behaviour.SCATTERED, 86, Log.FIRST_OFFENDER),  # ops that are each refused alone, and fused together in a place
        (Behaviour.SCATTERED, 102, Log.FIRST_OFFENDER),  # the same in no tensor's reach of each other
        (Behaviour.SCATTERED, 127, Log.FIRST_OFFENDER),  # fused with a place of an op that is refused in another one
        (Behaviour.SCATTERED, 121, Log.FIRST_OFFENDER),  # excused in another remainder than the one it was put into
        (Behaviour.EXCUSE, 800_273, Log.FIRST_OFFENDER),  # named first for a pattern that it is part of
        (Behaviour.UNLESS, 800_079, Log.FIRST_OFFENDER),  # excused by an op that makes a pattern with others like it
        (Behaviour.UNLESS, 800_111, Log.FIRST_OFFENDER),
        (Behaviour.EXCUSE, 800_118, Log.FIRST_OFFENDER),  # excused by its one neighbour, and by nothing larger
        (Behaviour.CUT, 54, Log.FIRST_OFFENDER),  # an op that fails with some of its consumers
        (Behaviour.BOUNDARY, 78, Log.FIRST_OFFENDER),  # ops apart from each other that pass with all between them
        (Behaviour.PIECES, 57, Log.FIRST_OFFENDER),  # the same, where others like them were seen to pass so
        (Behaviour.XOR, 40051, Log.FIRST_OFFENDER),  # excused by what is far away, and refused with what is next to it
        (Behaviour.XOR, 40071, Log.FIRST_OFFENDER),  # two ops that excuse each other, refused with what lies between
        (Behaviour.SCATTERED, 127, Log.SILENT),  # two that are fused with a third far from them
        (Behaviour.SCATTERED, 180, Log.SILENT),
    ],
)
def test_what_fails_for_want_of_its_context_is_not_stated_as_a_fact(behaviour, seed, log):
    run = Run(world=world(behaviour, seed), log=log)
    assert not judge(run, run.diagnose()).false_facts


@pytest.mark.parametrize(
    ("seed", "status", "certainties"),
    [(178, CertificateStatus.PROVEN, {Certainty.SUSPECTED}), (120, CertificateStatus.BOUNDED, set())],
)
def test_a_search_ends_where_parts_of_what_passes_fail_again_and_again(
    seed: int, status: CertificateStatus, certainties: set[Certainty]
) -> None:
    """178: V3 is refused without V0 in the file, and V0 without V3, in two blocks: hundreds of sets fail and are parts
    of what passes. Of 120, no further probes would settle what fails, and each set that fails passes in its context.
    """
    run = Run(world=world(Behaviour.XOR, seed), log=Log.FIRST_OFFENDER)
    diagnosis = run.diagnose()
    assert run.calls <= 300
    assert diagnosis.certificate.status is status
    assert {culprit.certainty for culprit in diagnosis.culprits} == certainties
    assert not judge(run, diagnosis).missed or status is CertificateStatus.BOUNDED


def test_a_search_ends_where_the_compiler_contradicts_itself_on_most_probes() -> None:
    """A fifth of the answers is wrong, and each of 400 contexts was asked up to nine times."""
    run = Run(world=world(Behaviour.FLAKY, 2853), recheck=True)
    diagnosis = run.diagnose()
    assert run.calls <= 400
    assert any(it.startswith("The search ended because") for it in diagnosis.certificate.unknown)
    assert not judge(run, diagnosis).false_facts


def test_a_culprit_in_a_probe_that_mostly_passed_is_not_confirmed():
    """Another worker has asked that probe; three answers of a flaky compiler do not settle it."""
    one = World(chain(list(range(14))), monotone({0b11}))
    assert [culprit.certainty for culprit in one.diagnose().diagnosis.culprits] == [Certainty.CONFIRMED]
    probe = of([0, 1, 5, 9])
    assert probe not in one.verdicts
    passed, failed = Verdict(status=Status.PASS), Verdict(status=Status.FAIL)
    known = {**one.verdicts, probe: [passed, failed, passed]}
    (culprit,) = plan(one.universe, known).diagnosis.culprits
    assert culprit.certainty is Certainty.SUSPECTED


def test_what_fuses_at_a_distance_of_three_is_innocent_in_every_layer():
    """Layer normalisation, four times, with two ReduceMean (V1) in each; a fifth pools, and is refused."""
    layer = [0, 1, 2, 3, 1, 4, 5, 6]  # MatMul, ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div
    variants = [*layer * 4, 7, 1, 8]
    edges = []
    for first in range(0, 32, 8):
        edges += [
            (first + a, first + b) for a, b in [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (2, 7), (6, 7)]
        ]
        edges.append((first + 7, first + 8))
    edges += [(32, 33), (33, 34)]
    graph = universe(variants, edges)
    layers = [of(range(first + 1, first + 8)) for first in range(0, 32, 8)]

    def rule(units: UnitSet) -> bool:
        whole = of(unit for units_of in layers if units_of & ~units == 0 for unit in members(units_of))
        return bool(units & graph.variant_members[1] & ~whole)

    one = World(graph, rule)
    step = one.diagnose()
    assert all_found(step) == {1 << 33}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert one.calls <= 16


def test_what_fuses_in_small_files_only_is_no_pair_with_the_unit_that_was_one_too_many():
    """Pow (V3) is refused outside of its layer normalisation, and inside of it in a file of more than 45 units."""
    layer = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (2, 7), (6, 7), (7, 8)]
    edges = [(first + one, first + other) for first in range(0, 48, 8) for one, other in layer]
    graph = universe([*[0, 1, 2, 3, 1, 4, 5, 6] * 6, 7, 8, 9, 10], [*edges, (48, 49), (49, 50), (50, 51)])
    layers = {first + 3: of(range(first + 1, first + 8)) for first in range(0, 48, 8)}

    def rule(units: UnitSet) -> bool:
        places = [layers[unit] for unit in members(units & graph.variant_members[3])]
        return (size(units) > 45 and bool(places)) or any(not is_subset(place, units) for place in places)

    one = World(graph, rule)
    diagnosis = one.diagnose().diagnosis
    [culprit] = diagnosis.culprits
    assert (union(culprit.occurrences), culprit.certainty) == (graph.variant_members[3], Certainty.SUSPECTED)
    assert diagnosis.certificate.status is CertificateStatus.BOUNDED
    assert one.calls <= 31


@pytest.mark.long
@pytest.mark.parametrize("pairs", [([0, 2], [2, 3], [2, 5], [2, 6]), ([0, 2], [2, 3], [2, 5])])
def test_one_wrong_failure_confirms_no_interaction(pairs: tuple[list[int], ...]) -> None:
    """The context of an interaction may hold another one, which fails there anyway: it is no second witness."""
    edges = [(0, 1), (1, 2), (1, 3), (2, 3), (4, 6), (5, 6)]
    graph = universe([0, 1, 2, 0, 1, 0, 0], edges, solos=range(7))
    refused = monotone(truth := {of(pair) for pair in pairs})
    places = {of(pair) for pair in ([0, 2], [2, 3], [2, 5], [2, 6])}
    asked = 0
    for wrong in range(1, graph.everything + 1):
        if refused(wrong):
            continue

        class Lying(World):
            """Fails one probe by mistake, the first time that it is asked."""

            def compile(self, units: UnitSet, wrong: UnitSet = wrong) -> Verdict:
                first = units == wrong and not self.verdicts.get(units)
                return Verdict(status=Status.FAIL) if first else super().compile(units)

        one = Lying(graph, refused)
        step = one.diagnose()
        asked += wrong in one.verdicts
        if wrong in places:  # a place of the pair that passes: it is no fact that it fails
            assert {culprit.certainty for culprit in step.diagnosis.culprits} <= {Certainty.SUSPECTED}
            assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED
        else:
            assert all_found(step) == truth, f"{wrong:b}"
    assert asked >= 5, "hardly a mistake was seen"


def fused_pair_of_which_one_is_refused_with_another() -> tuple[Universe, Rule]:
    """V1 (unit 1) and V2 (unit 2) are one instruction and are refused apart; V2 feeding V0 is refused."""
    graph = universe([0, 1, 2, 0, 0, 3], [(0, 1), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4)])
    feeding = monotone([0b01100, 0b10100])
    return graph, lambda units: feeding(units) or (units & 0b110) in (0b010, 0b100)


def neighbours_that_excuse_each_other_of_which_one_is_refused_with_another() -> tuple[Universe, Rule]:
    """V1 and V2, neighbours, are refused without each other; V0 feeding V1 is refused."""
    graph = universe([0, 1, 2, 3, 3], [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])
    feeding = monotone([0b011])
    return graph, lambda units: feeding(units) or (units & 0b110) in (0b010, 0b100)


@pytest.mark.parametrize(
    "compiler",
    [
        fused_pair_of_which_one_is_refused_with_another,
        neighbours_that_excuse_each_other_of_which_one_is_refused_with_another,
    ],
)
def test_a_deterministic_compiler_is_not_said_to_contradict_itself(compiler):
    """An interaction of the one half of a fused pattern that passes together: nothing was found of either before."""
    graph, rule = compiler()
    failing = sum(1 << units for units in range(graph.everything + 1) if rule(units))
    it = RuleWorld(behaviour=Behaviour.FUSION, seed=0, universe=graph, failing=failing, planted=(), words="a pattern")
    run = Run(world=it)
    diagnosis = run.diagnose()
    assert {units for culprit in diagnosis.culprits for units in culprit.occurrences} == set(it.truth)
    assert not judge(run, diagnosis).violations
    assert diagnosis.certificate.status is CertificateStatus.PROVEN
    assert diagnosis.certificate.unknown == ()
    assert diagnosis.flaky == ()


def test_places_that_fail_where_they_stand_are_not_asked_again_for_what_passes_far_away():
    """V0 is refused alone, and fine where V1 follows three steps later: in every other one of twenty contexts."""
    chance = random.Random(1)
    variants: list[int] = []
    for block in range(20):
        beside = [chance.randrange(2, 32) for _ in range(5)]
        variants += [*beside[:3], 0, *beside[3:], 32 if block % 2 else 1]
    numbers = {variant: number for number, variant in enumerate(sorted(set(variants)))}
    graph = chain([numbers[variant] for variant in variants])
    excused = {7 * block + 3: 0b1111 << 7 * block + 3 for block in range(0, 20, 2)}
    places = {7 * block + 3 for block in range(20)}

    def rule(units: UnitSet) -> bool:
        return any(units >> at & 1 and excused.get(at, -1) & ~units for at in places)

    one = World(graph, rule)
    step = one.diagnose()
    assert all_found(step) == {1 << at for at in places - set(excused)}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert one.calls <= 60  # 85 where each was asked again after each that passed


def test_an_op_that_the_log_names_is_confirmed_where_its_places_do_not_look_alike() -> None:
    """The log names the first refused op and no node, so it does not say at which place of V3 the model fails."""
    graph = chain([5, *[0, 1, 2, 0, 1, 0, 3, 4] * 3, 6])
    refused = (5, 3, 6)

    def log(units: UnitSet) -> Hints:
        return Hints(ops=(next(f"V{variant}" for variant in refused if graph.variant_members[variant] & units),))

    bad = union(graph.variant_members[variant] for variant in refused)
    step = World(graph, lambda units: bool(units & bad), log, fingerprints=True).diagnose()
    assert union(all_found(step)) == bad
    assert {culprit.certainty for culprit in step.diagnosis.culprits} == {Certainty.CONFIRMED}


@pytest.mark.parametrize("listed", ["all nodes", "all that is ever refused", "the ends", "first offender"])
def test_a_log_that_lists_what_is_fine_makes_no_culprit(listed):
    """Sigmoid (2) is refused unless a Mul (3) follows it, Tanh (4) always; the log lists more than it refuses."""
    kinds = [0, 1, 0, 2, 3, 0, 1, 0, 0, 2, 3, 0, 1, 4, 0, 1, 0, 2, 3, 0, 1, 0, 1, 0]
    edges = [(unit, unit + 1) for unit in range(23)]
    graph = universe(kinds, edges + [(unit - 1, unit + 1) for unit in range(24) if kinds[unit] == 2])

    def refused(units: UnitSet) -> UnitSet:
        alone = (unit for unit in members(units) if kinds[unit] == 2 and not units >> unit + 1 & 1)
        return units & graph.variant_members[4] | of(alone)

    def log(units: UnitSet) -> Hints:
        inside = list(members(units))
        named = {
            "all nodes": inside,
            "all that is ever refused": [unit for unit in inside if kinds[unit] in (2, 4)],
            "the ends": [inside[0], inside[-1]],
            "first offender": [lowest(refused(units))],
        }
        return Hints(nodes=tuple(f"n{unit}" for unit in named[listed]))

    one = World(graph, lambda units: bool(refused(units)), log)
    diagnosis = one.diagnose().diagnosis
    (culprit,) = diagnosis.culprits
    assert (culprit.units, culprit.certainty) == (1 << 13, Certainty.CONFIRMED)
    assert diagnosis.certificate.status is CertificateStatus.PROVEN
    assert one.calls <= 12


def test_a_list_of_all_refused_ops_costs_one_call_more_than_its_culprits():
    graph = chain([*range(8), 8, *range(8), 9, *range(8), 10, *range(8), 11, *range(8)])
    refused = of(unit for unit in range(len(graph)) if graph.variant[unit] >= 8)
    one = World(
        graph,
        lambda units: bool(units & refused),
        lambda units: Hints(nodes=tuple(f"n{unit}" for unit in members(units & refused))),
    )
    step = one.diagnose()
    assert all_found(step) == {1 << unit for unit in members(refused)}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert {culprit.certainty for culprit in step.diagnosis.culprits} == {Certainty.CONFIRMED}
    assert one.calls <= 2 + 4 + 1


@pytest.mark.parametrize("seed", [3, 5])
def test_each_way_to_break_a_group_is_tried_beside_another_group(seed):
    """A hub (2) with more than three of its consumers is refused, and so are four units elsewhere together."""
    chance = random.Random(seed)
    count = chance.choice([14, 16, 20, 26])
    kinds = [chance.randrange(9) for _ in range(count)]
    read = {(2, unit) for unit in chance.sample(range(3, count - 5), 5)}
    kinds[2] = 9
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    graph = universe([numbers[kind] for kind in kinds], sorted(read | {(unit, unit + 1) for unit in range(count - 1)}))
    consumers, four = graph.successors[2], of(range(count - 4, count))

    def rule(units: UnitSet) -> bool:
        return (bool(units & 1 << 2) and size(units & consumers) > 3) or is_subset(four, units)

    diagnosis = World(graph, rule).diagnose().diagnosis
    named = {units for culprit in diagnosis.culprits for units in culprit.occurrences}
    assert diagnosis.certificate.status is CertificateStatus.PROVEN
    assert named == {1 << 2 | of(some) for some in combinations(members(consumers), 4)} | {four}


def test_what_its_like_compiled_with_is_no_fact_where_that_was_not_asked() -> None:
    """An Add whose one consumer is a Relu is fused with it; each is refused alone. The Add at 2 has two consumers.

    So 2, 3 and the Relu at 9 are to blame, while 5 and 6 compile together as 12 and 13 do.
    """
    add, relu = 1, 2
    graph = universe(
        [0, 3, add, relu, 0, add, relu, 0, 0, relu, 0, 4, add, relu],
        [(0, 1), (1, 2), (2, 3), (2, 5), (3, 4), (4, 5), *((unit, unit + 1) for unit in range(5, 13))],
    )

    def refused(units: UnitSet) -> UnitSet:
        fused = 0
        for unit in members(units & of([2, 5, 12])):
            after = graph.successors[unit] & units
            fused |= 1 << unit | after if size(after) == 1 and graph.variant[lowest(after)] == relu else 0
        return units & of([2, 3, 5, 6, 9, 12, 13]) & ~fused

    diagnosis = World(graph, lambda units: bool(refused(units))).diagnose().diagnosis

    stated = [culprit.units for culprit in diagnosis.culprits if culprit.certainty is not Certainty.SUSPECTED]
    assert stated == [1 << 9]
    assert diagnosis.certificate.status is CertificateStatus.BOUNDED


@pytest.mark.parametrize("lie", [0, 1])
def test_one_false_refusal_is_no_interaction_of_many_units(lie: int) -> None:
    """Of all probes that the compiler takes and that have a third of the units and more, it refuses one, once."""
    graph = chain([unit % 12 for unit in range(36)])
    taken: list[UnitSet] = []

    def refused(units: UnitSet) -> bool:
        if units & 0b1000000000001000000000001:
            return True
        taken.extend([units] * (size(units) >= 12))
        return size(units) >= 12 and len(taken) == lie + 1

    one = World(graph, refused)
    step = one.diagnose()
    assert all_found(step) == {1, 1 << 12, 1 << 24}
    assert one.calls <= 25


@pytest.mark.parametrize(("seed", "recheck"), [(18, False), (20, True), (25, True)])
def test_what_failed_only_while_the_compiler_was_down_is_no_fact(seed: int, recheck: bool) -> None:
    """Asked again at once it fails again."""
    run = Run(world=world(Behaviour.WINDOW, seed), recheck=recheck)
    assert not judge(run, run.diagnose()).false_facts


@pytest.mark.parametrize("first", [1, 5, 9])
def test_a_compiler_that_is_down_for_three_calls_adds_no_culprit(first: int) -> None:
    graph = chain([unit % 8 for unit in range(16)])
    truth = {of(pair) for pair in combinations(range(16), 2) if {graph.variant[unit] for unit in pair} == {2, 5}}

    class Down(World):
        """Fails these calls, whatever they ask."""

        def compile(self, units: UnitSet) -> Verdict:
            down = first <= self.calls < first + 3
            answer = super().compile(units)
            return Verdict(status=Status.FAIL) if down else answer

    step = Down(graph, monotone(truth)).diagnose()
    facts = [it for it in step.diagnosis.culprits if it.certainty is not Certainty.SUSPECTED]
    assert {units for culprit in facts for units in culprit.occurrences} <= truth


def test_a_log_that_names_a_unit_of_an_interaction_is_believed_about_others():
    """Quantisers (4 to 7) are refused alone, Conv (2) where a bias (0, 1) feeds it; the log names the first of all."""
    layers = [kind for layer in range(6) for kind in (9 + layer, layer % 2, 2, 3, 4 + layer % 4, 8)]
    graph = universe(layers, [(unit - step, unit) for unit in range(len(layers)) for step in (1, 2) if unit >= step])

    def offenders(units: UnitSet) -> list[int]:
        pairs = [unit for unit in members(units) if layers[unit] == 2 and units >> unit - 1 & 1]
        return sorted([*pairs, *(unit for unit in members(units) if 4 <= layers[unit] <= 7)])

    one = World(
        graph,
        lambda units: bool(offenders(units)),
        lambda units: Hints(nodes=tuple(f"n{unit}" for unit in offenders(units)[:1])),
    )
    step = one.diagnose()
    assert len(step.diagnosis.culprits) == 6
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert {culprit.certainty for culprit in step.diagnosis.culprits} == {Certainty.CONFIRMED}
    assert one.calls <= 36


@pytest.mark.long
def test_three_ops_that_fail_together_anywhere_are_not_asked_in_every_combination() -> None:
    """Two units of one op and one of another, anywhere in the file: 440 minimal sets in 30 units."""
    chance = random.Random(3)
    edges = {(unit, unit + 1) for unit in range(29)}
    edges |= {(chance.randrange(max(0, unit - 8), unit), unit) for unit in range(2, 30) if chance.random() < 0.3}
    ops = [3, 0, 2, 2, 0, 3, 2, 2, 2, 3, 1, 1, 3, 3, 2, 1, 0, 2, 2, 2, 1, 3, 1, 3, 1, 0, 3, 2, 1, 2]
    graph = universe(ops, sorted(edges), range(30))
    two, three = graph.variant_members[2], graph.variant_members[3]
    one = World(graph, lambda units: size(units & two) >= 2 and bool(units & three))

    step = one.diagnose()

    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    sets = {
        1 << first | 1 << second | 1 << third
        for first, second in combinations(members(two), 2)
        for third in members(three)
    }
    assert all_found(step) == sets
    assert one.calls <= 120


def needs_all(hub: int, graph: Universe, refused: tuple[UnitSet, ...]) -> RuleWorld:
    """The hub is refused with some of its neighbours and without others; so are these sets."""
    around = graph.neighbours(1 << hub)

    def lacks(units: UnitSet) -> bool:
        return bool(units >> hub & 1 and units & around) and not is_subset(around, units)

    lacking = sum(1 << units for units in range(graph.everything + 1) if lacks(units))
    failing = lacking | sum(1 << units for units in range(graph.everything + 1) if monotone(refused)(units))
    return RuleWorld(
        behaviour=Behaviour.CUT,
        seed=0,
        universe=graph,
        failing=failing,
        planted=refused,
        words="a hub without some of its neighbours",
        refusing={hub: lacking},
    )


@pytest.mark.parametrize("log", [Log.SILENT, Log.FIRST_OFFENDER])
@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("spokes", [2, 3])
@pytest.mark.parametrize("alike", [False, True])
def test_an_op_that_needs_all_its_neighbours_is_not_blamed_with_some(log, into, spokes, alike):
    """Each neighbour is refused with what is behind it, so that all that is next to the hub holds a culprit."""
    near, far = range(1, spokes + 1), range(spokes + 1, 2 * spokes + 1)
    edges = [*((0, unit) for unit in near), *zip(near, far, strict=True)]
    variants = [0, *([1] * spokes if alike else near), *[9] * spokes]
    refused = tuple(of(edge) for edge in edges[spokes:])
    hub = 0
    if into:
        last = 2 * spokes
        hub, variants = last, variants[::-1]
        edges = [(last - after, last - before) for before, after in edges]
        refused = tuple(of(last - unit for unit in members(pair)) for pair in refused)
    numbers = {variant: number for number, variant in enumerate(dict.fromkeys(variants))}
    run = Run(world=needs_all(hub, universe([numbers[it] for it in variants], edges), refused), log=log)
    assert not judge(run, run.diagnose()).false_facts


@given(st.integers(0, 100_000))
@settings(max_examples=examples(30))
def test_a_log_that_names_each_refused_place_shows_what_is_fused_elsewhere(seed):
    """A compiler that fuses a pattern, which need not be connected, and refuses nothing else."""
    worlds = (world(Behaviour.SCATTERED, other) for other in count(seed))
    one = next(it for it in worlds if not it.planted)
    run = Run(world=one, log=Log.FIRST_OFFENDER)
    assert not judge(run, run.diagnose()).false_facts, one


@pytest.mark.parametrize("seed", [5043, 5195])
def test_an_op_is_asked_in_small_sets_without_ops_that_a_log_names_first(seed):
    """In all of a few sets the log named another refused op, and said nothing of this one, which others make pass."""
    run = Run(world=world(Behaviour.FUSION, seed), log=Log.FIRST_OFFENDER)
    assert not judge(run, run.diagnose()).false_facts


@given(st.integers(0, 100_000))
@example(910_014)
@settings(max_examples=examples(30))
def test_nothing_is_proven_of_units_that_no_remainder_holds(seed):
    """A compiler that gives no answer above a size: units passed alone, and the rest got no answer with them."""
    one = world(Behaviour.TIME_OUTS, seed)
    diagnosis = Run(world=one).diagnose()
    held = union(diagnosis.certificate.probes)
    blamed = union(units for culprit in diagnosis.culprits for units in (culprit.among, *culprit.occurrences))
    if held | blamed != one.universe.everything:
        assert diagnosis.certificate.status is CertificateStatus.BOUNDED, one


@pytest.mark.parametrize(
    ("behaviour", "seed"), [(Behaviour.EXCUSE, 200_045), (Behaviour.EXCUSE, 200_111), (Behaviour.UNLESS, 200_137)]
)
def test_nothing_is_proven_of_units_that_the_search_gave_up(behaviour, seed):
    """They passed in a small piece and failed with more; one of them is in an interaction that was found."""
    run = Run(world=world(behaviour, seed), log=Log.FIRST_OFFENDER)
    diagnosis = run.diagnose()
    assert not judge(run, diagnosis).missed
    assert diagnosis.certificate.status is CertificateStatus.BOUNDED


def test_an_op_that_is_cut_with_others_and_refused_only_alone_is_no_suspect_without_places() -> None:
    """An op that compiles before another; it is cut with its producer, until that one or its producer is a culprit."""
    graph = replace(chain([0, 1, 2, 3, 0, 0]), required_producers={3: 1 << 2, 4: 1 << 3, 5: 1 << 4})

    def rule(units: UnitSet) -> bool:
        return bool(units & 1 << 2) or any(units >> it & 0b11 == 0b01 for it in (0, 4))

    step = World(split_variants_by_producers(graph), rule).diagnose()
    assert all_found(step) == {1 << 2}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert {it.units for it in step.diagnosis.needs_context} == {1 << 0, 1 << 4}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("places", "bad"), [((4, 5, 8, 15), 12), ((6, 7, 9, 14, 15), 21), ((5, 7, 13, 15, 18), 9), ((3, 11, 12, 14), 2)]
)
def test_an_op_that_needs_what_holds_another_place_of_it_is_not_to_blame(places, bad, after) -> None:
    """A chain of ops; one is refused, and one at some places, without the three before it or the three after it."""
    last = 21
    if after:
        places, bad = tuple(last - it for it in places), last - bad
    kinds = [99 if unit in places else unit for unit in range(last + 1)]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    needed = {it: 0b111 << (it + 1 if after else it - 3) for it in places}

    def rule(units: UnitSet) -> bool:
        return bool(units >> bad & 1) or any(units >> it & 1 and not is_subset(needed[it], units) for it in places)

    diagnosis = World(chain([numbers[kind] for kind in kinds]), rule).diagnose().diagnosis
    for culprit in diagnosis.culprits:
        for units in culprit.occurrences if culprit.certainty is Certainty.CONFIRMED else ():
            fact = units & ~culprit.inferred
            while (grown := fact | union(needed[it] for it in places if fact >> it & 1)) != fact:
                fact = grown
            assert fact >> bad & 1 or not fact


def test_what_holds_a_failing_part_is_not_asked_whether_it_is_to_blame_for_the_next_op() -> None:
    """Ops that compile before another, cut with what makes their inputs: each fails of what those before it do."""
    needs = {2: [1], 3: [2], 4: [3], 5: [2, 3, 4], 6: [5]}
    graph = replace(chain(list(range(7))), required_producers={unit: of(makers) for unit, makers in needs.items()})

    def rule(units: UnitSet) -> bool:
        return bool(units & 1 << 6) or any(units >> it & 0b11 == 0b01 for it in (1, 4))

    compiler = World(split_variants_by_producers(graph), rule)
    step = compiler.diagnose()
    assert all_found(step) == {1 << 6}
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert compiler.calls <= 16
