"""An op that is refused in its place, and compiles in a smaller piece, is a suspicion and no fact."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.diagnosis import Certainty, CertificateStatus
from onnxbisect.search import next_asks, plan
from onnxbisect.search.context import between_neighbours, fused_pieces, place_with_most_neighbours
from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, lowest, members, of, size, union
from onnxbisect.verdict import Hints, Status, Verdict
from support.engine.large_compilers import CLASSES
from support.engine.large_worlds import LargeWorld, model, planted, search
from support.engine.worlds import World, universe
from support.examples import examples

PIECES = next(one for one in CLASSES if "pieces" in one.words)
FUSED_GREEDILY = next(one for one in CLASSES if one.letter == "C")


def test_an_op_that_another_reader_keeps_from_its_pattern_is_suspected() -> None:
    """V1 is taken together with the V2 that it reads where nothing else reads that; of one V2, two V1 read it."""
    variants = [0, 1, 1, 2, 2, 1, 0, 1, 2, 1, 1, 1, 1]
    graph = universe(variants, [*((unit, unit + 1) for unit in range(12)), (4, 6)])

    def fused(unit: int, units: UnitSet) -> bool:
        before = members(graph.predecessors[unit] & graph.variant_members[2] & units)
        return any(size(graph.successors[it] & units) == 1 for it in before)

    one = World(graph, lambda units: not all(fused(unit, units) for unit in members(units & graph.variant_members[1])))
    diagnosis = one.diagnose().diagnosis
    (culprit,) = diagnosis.culprits
    assert 1 << 5 in culprit.occurrences
    assert culprit.certainty is Certainty.SUSPECTED
    assert diagnosis.certificate.status is CertificateStatus.BOUNDED


def test_an_op_that_is_taken_with_an_op_on_either_side_is_suspected() -> None:
    """V1 is taken between a V2 and a V3 where nothing else reads the V2; in one place something else does."""
    variants = [0, 4, 2, 1, 3, 4, 0, 2, 4, 4, 1, 4, 0, 4]
    graph = universe(variants, [*((unit, unit + 1) for unit in range(13)), (2, 6)])

    def fused(unit: int, units: UnitSet) -> bool:
        before = members(graph.predecessors[unit] & graph.variant_members[2] & units)
        return any(size(graph.successors[it] & units) == 1 for it in before) and bool(
            graph.successors[unit] & graph.variant_members[3] & units
        )

    one = World(graph, lambda units: not all(fused(unit, units) for unit in members(units & graph.variant_members[1])))
    diagnosis = one.diagnose().diagnosis
    (culprit,) = diagnosis.culprits
    assert 1 << 3 in culprit.occurrences
    assert culprit.certainty is Certainty.SUSPECTED


def test_a_piece_with_an_op_on_either_side_has_nothing_else_that_reads_either() -> None:
    graph = universe([0, 1, 2, 3, 4, 5], [(0, 2), (1, 2), (1, 3), (1, 5), (2, 3), (2, 4)])
    everything = graph.everything
    assert between_neighbours(graph, 2, everything) == of([1, 2, 4])
    assert between_neighbours(graph, 2, everything & ~of([1])) == of([0, 2, 3])
    assert between_neighbours(graph, 2, everything & ~of([4])) == of([1, 2])
    assert not between_neighbours(graph, 5, 0)


@pytest.mark.parametrize("seed", [73, 184, 5040])
def test_an_op_is_asked_between_two_of_which_none_is_suspected(seed: int) -> None:
    """In the model something else reads its producer, or another culprit is next to it or to what it reads."""
    ((_, made),) = FUSED_GREEDILY.worlds(1, seed - 1)
    judged = search(made, seed, recheck=False, seconds=60)
    assert judged.ended
    assert not judged.false


@pytest.mark.parametrize("seed", [35, 5071, 9039])
def test_an_op_whose_producer_is_taken_by_another_pattern_is_no_fact(seed: int) -> None:
    """In the model the producer is fused with what it reads, or with another reader; in a piece of two it is free."""
    ((_, made),) = FUSED_GREEDILY.worlds(1, seed - 1)
    judged = search(made, seed, recheck=False, seconds=60)
    assert judged.ended
    assert not judged.false


def test_a_place_stands_for_an_op_where_nothing_else_reads_what_it_reads() -> None:
    graph = universe([0, 1, 2, 0, 1, 3], [*((unit, unit + 1) for unit in range(5)), (0, 2)])
    suspect = Suspect(units=1 << 1, fails=1 << 1, occurrences=((1,), (4,)), verified=False)
    assert list(fused_pieces(graph, 1, graph.everything)) == [1 << 0 | 1 << 1]
    assert not list(fused_pieces(graph, 4, graph.everything))
    assert place_with_most_neighbours(graph, suspect, graph.everything & ~suspect.everywhere, 1) == 4


def test_what_is_fused_greedily_is_seldom_blamed_alone() -> None:
    """Of these worlds every third one had a false fact where no op was asked with what it reads alone."""
    judged = [search(made, seed, recheck=False, seconds=60) for seed, made in FUSED_GREEDILY.worlds(12, 84)]
    assert all(it.ended for it in judged)
    assert not any(it.false or it.wrong for it in judged)


@settings(deadline=None, max_examples=examples(15))
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_a_compiler_that_fuses_nothing_is_asked_one_piece_for_it(seed: int, bad: int) -> None:
    chance = random.Random(seed)
    graph = model(chance, (16, 30, 60))
    sets = planted(chance, graph, bad)
    made = LargeWorld(universe=graph, refused=lambda units: any(not it & ~units for it in sets), planted=sets)
    verdicts: dict[UnitSet, list[Verdict]] = {}
    whys = []
    while asks := next_asks(graph, verdicts):
        verdicts.setdefault(asks[0].units, []).append(made.answer(asks[0].units, 0, len(verdicts)))
        whys.append(asks[0].why)
    diagnosis = plan(graph, verdicts).diagnosis
    assert sum(it.startswith("an op with what it reads") for it in whys) <= 1
    assert {units for it in diagnosis.culprits for units in it.occurrences} == sets
    assert all(it.certainty is Certainty.CONFIRMED for it in diagnosis.culprits)
    assert any(it[0].status is Status.FAIL for it in verdicts.values())


@pytest.mark.parametrize(
    ("variants", "solos", "edges", "planted"),
    [
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2], [(unit, unit + 1) for unit in range(5)], [of([0, 1]), of([3, 4])]),
        ([0, 1, 0, 0, 1], [0, 1, 2, 3, 4], [(0, 1)], [of([0, 1])]),
    ],
)
def test_an_op_that_is_excused_by_one_that_is_not_next_to_it_is_suspected(
    variants: list[int], solos: list[int], edges: list[tuple[int, int]], planted: list[UnitSet]
) -> None:
    """V0 or V1 is refused without the other in the file, and some of them next to each other. A log names the first."""
    graph = universe(variants, edges, solos)
    ops = graph.variant_members[0], graph.variant_members[1]

    def refused(units: UnitSet) -> UnitSet:
        found = [lowest(it) for it in planted if not it & ~units]
        found += members(units & union(ops)) if bool(units & ops[0]) != bool(units & ops[1]) else []
        return of(found)

    def log(units: UnitSet) -> Hints:
        first = lowest(refused(units))
        return Hints(ops=(graph.op[first],), nodes=(f"n{first}",))

    diagnosis = World(graph, lambda units: bool(refused(units)), log, fingerprints=True).diagnose().diagnosis
    assert diagnosis.culprits
    assert all(it.certainty is Certainty.SUSPECTED for it in diagnosis.culprits)
    parts = range(1, graph.everything + 1)
    to_blame = [it for it in parts if all(refused(more) for more in parts if not it & ~more)]
    minimal = {it for it in to_blame if not any(less != it and not less & ~it for less in to_blame)}
    found = {units for culprit in diagnosis.culprits for units in culprit.occurrences}
    assert found == minimal or diagnosis.certificate.status is CertificateStatus.BOUNDED


@pytest.mark.parametrize(
    ("variants", "edges", "fused", "planted"),
    [
        ([0, 1, 1, 0, 1, 1], [(unit, unit + 1) for unit in range(5)], [of([0, 2, 3])], [of([1, 2]), of([4, 5])]),
        ([0, 1, 2, 3, 1], [(1, 2)], [of([0, 1, 2, 4])], [of([0, 3])]),
    ],
)
def test_an_op_that_is_fused_with_one_that_is_not_next_to_it_is_not_stated(
    variants: list[int], edges: list[tuple[int, int]], fused: list[UnitSet], planted: list[UnitSet]
) -> None:
    """V0 and V1 are taken in a pattern of several pieces, which overlaps with what is refused next to each other."""
    graph = universe(variants, edges)
    needy = graph.variant_members[0] | graph.variant_members[1]

    def rule(units: UnitSet) -> bool:
        taken = union(it for it in fused if not it & ~units)
        return bool(units & needy & ~taken) or any(not it & ~units for it in planted)

    diagnosis = World(graph, rule).diagnose().diagnosis
    assert diagnosis.culprits
    parts = range(1, graph.everything + 1)
    to_blame = [it for it in parts if all(rule(more) for more in parts if not it & ~more)]
    minimal = {it for it in to_blame if not any(less != it and not less & ~it for less in to_blame)}
    found = {units for it in diagnosis.culprits for units in it.occurrences}
    stated = {units for it in diagnosis.culprits if it.certainty is Certainty.CONFIRMED for units in it.occurrences}
    assert stated <= minimal
    assert found == minimal or diagnosis.certificate.status is CertificateStatus.BOUNDED


def test_interactions_that_only_share_their_number_of_unconnected_units_are_suspected() -> None:
    """The compiler takes so many unconnected pieces without ops on the host; the search found ten choices of four."""
    ((_, made),) = PIECES.worlds(1, 8)
    judged = search(made, 9, recheck=False, seconds=60)
    assert judged.ended
    assert not judged.false
