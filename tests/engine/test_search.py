"""The search against brute force, on random small graphs and random hidden failure rules."""

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, all_found, chain, minimal_failing_sets, monotone, silent, universe

from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet, is_subset, members, of
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Status

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
@settings(max_examples=300, deadline=None)
def test_all_minimal_failing_sets_are_found_and_proven(data, graph, kind, width):
    truth = data.draw(minimal_sets(len(graph)))
    world = World(graph, monotone(truth), logger(kind, graph, truth))
    step = world.diagnose(width)
    assert all_found(step) == truth
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN
    assert step.diagnosis.verdict is (Status.FAIL if truth else Status.PASS)
    assert step.diagnosis.needs_context == ()
    for culprit in step.diagnosis.culprits:
        assert culprit.certainty is Certainty.CONFIRMED


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
@settings(max_examples=300, deadline=None)
def test_every_occurrence_of_a_structural_culprit_is_found(data, graph, width):
    rule = data.draw(structural_rules(graph))
    world = World(graph, rule)
    step = world.diagnose(width)
    assert all_found(step) == minimal_failing_sets(len(graph), rule)
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


@given(st.data(), dags())
@settings(max_examples=300, deadline=None)
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

    world = World(graph, rule)
    diagnosis = world.diagnose().diagnosis
    assert (diagnosis.verdict is Status.FAIL) == rule(graph.everything)
    if diagnosis.certificate.status is CertificateStatus.PROVEN:
        assert not rule(diagnosis.remainder)
    for culprit in diagnosis.culprits:
        if culprit.certainty is Certainty.CONFIRMED and culprit.kind is not CulpritKind.CAPACITY:
            assert rule(culprit.units)
            assert rule(diagnosis.remainder | culprit.units), "blamed, though it passes in context"
            for unit in members(culprit.units):
                part = culprit.units & ~(1 << unit)
                assert not part or not rule(part)


def test_the_same_verdicts_give_the_same_plan_in_whatever_order_they_came():
    graph = chain([0, 1, 2, 0, 3, 1, 4, 2, 5])
    world = World(graph, lambda units: bool(units & graph.variant_members[3]) or bool(units & graph.variant_members[5]))
    world.diagnose(4)
    backwards = dict(reversed(world.verdicts.items()))
    assert plan(graph, backwards) == plan(graph, world.verdicts)
