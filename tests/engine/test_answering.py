"""Compilers that give no answer about large files: pieces are asked, and what is larger is said to be unknown."""

import random
from collections.abc import Callable

import pytest

from onnxbisect.diagnosis import CertificateStatus
from onnxbisect.search import Plan
from onnxbisect.search.limits import pieces
from onnxbisect.unitset import UnitSet, full, is_subset, members, of, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status, Verdict
from support.engine.worlds import World, all_found, monotone, universe


def network(seed: int, count: int) -> Universe:
    """A chain with skip connections, of which each op occurs about six times."""
    chance = random.Random(seed)
    variants = [chance.randrange(count // 6) for _ in range(count)]
    skips = [(chance.randrange(unit), unit) for unit in range(2, count) if chance.random() < 0.3]
    return universe(variants, sorted({*((unit, unit + 1) for unit in range(count - 1)), *skips}))


def slow(one: World, late: Callable[[UnitSet], bool]) -> World:
    """The world, without an answer to some probes."""
    answer = one.compile

    def compile_or_not(units: UnitSet) -> Verdict:
        if not late(units):
            return answer(units)
        one.calls += 1
        return Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT, message="killed", seconds=600.0)

    one.compile = compile_or_not  # type: ignore[method-assign]
    return one


def unanswered(one: World) -> int:
    return sum(answer.status is Status.UNRESOLVED for answers in one.verdicts.values() for answer in answers)


def said(step: Plan) -> str:
    return " ".join(step.diagnosis.certificate.unknown)


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3, 0.15])
@pytest.mark.parametrize("seed", range(3))
def test_a_refused_op_is_found_where_large_files_get_no_answer(share: float, seed: int) -> None:
    graph = network(seed, 60)
    bad = graph.variant_members[3]
    most = int(share * 60)
    one = slow(World(graph, lambda units: bool(units & bad)), lambda units: size(units) > most)
    step = one.diagnose()
    assert all_found(step) == {1 << unit for unit in members(bad)}
    assert not step.diagnosis.unresolved
    assert unanswered(one) <= 6
    assert one.calls <= 45
    if share < 0.9:  # else the model without the culprits gets an answer
        assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED
        assert "no answer within 600 s for more than about" in said(step)


@pytest.mark.parametrize("seed", range(4))
def test_a_pair_of_neighbouring_ops_is_found_in_pieces(seed: int) -> None:
    graph = network(seed, 60)
    pair = next((a, a + 1) for a in range(25, 60) if graph.variant[a] != graph.variant[a + 1])
    kinds = [graph.variant[unit] for unit in pair]
    edges = [(a, b) for a in range(60) for b in members(graph.successors[a])]
    refused = {of(edge) for edge in edges if [graph.variant[unit] for unit in edge] == kinds}
    one = slow(World(graph, monotone(refused)), lambda units: size(units) > 20)
    step = one.diagnose()
    assert all_found(step) == refused
    assert unanswered(one) <= 8


@pytest.mark.parametrize("seed", range(4))
def test_an_op_that_hangs_is_no_limit_of_size(seed: int) -> None:
    graph = network(seed, 40)
    hangs = graph.variant_members[2]
    step = slow(World(graph, lambda _: False), lambda units: bool(units & hangs)).diagnose()
    assert step.diagnosis.unresolved == hangs
    assert "for more than about" not in said(step)


@pytest.mark.parametrize("seed", range(4))
def test_an_op_that_hangs_is_found_in_pieces(seed: int) -> None:
    graph = network(seed, 60)
    hangs = graph.variant_members[2]
    late = slow(World(graph, lambda _: False), lambda units: bool(units & hangs) or size(units) > 24)
    step = late.diagnose()
    assert is_subset(hangs, step.diagnosis.unresolved)
    assert size(step.diagnosis.unresolved & ~hangs) <= 6


@pytest.mark.parametrize("seed", range(20))
def test_pieces_hold_each_unit_with_its_neighbours(seed: int) -> None:
    graph = network(seed, 42)
    most = random.Random(seed).randint(3, 30)
    found = list(pieces(graph, full(42), most))
    assert all(size(piece) <= most for piece in found)
    for unit in range(42):
        for other in members(graph.neighbours(1 << unit)):
            assert any(is_subset(1 << unit | 1 << other, piece) for piece in found)
        star = graph.ball(1 << unit, 1)
        assert size(star) > most or any(is_subset(star, piece) for piece in found)
