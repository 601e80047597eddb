"""The generator tells the truth, and everyone who is compared finds what they should."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import peers
import tables
from generate import adjacent_pair, branches, far_pair, singles
from onnxbisect.unitset import members, size
from simulated import Log, compiler_of, search

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MAKERS = {
    "singles": lambda seed: singles(90, 20, 3, seed),
    "skewed": lambda seed: singles(90, 20, 3, seed, skewed=True),
    "branches": lambda seed: branches(90, 20, 3, seed),
    "adjacent pair": lambda seed: adjacent_pair(90, 20, seed),
    "far pair": lambda seed: far_pair(90, 20, seed),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_is_made_again_from_its_seed(name):
    once, again, other = MAKERS[name](1), MAKERS[name](1), MAKERS[name](2)
    assert (once.universe.variant, once.universe.successors) == (again.universe.variant, again.universe.successors)
    assert once.truth == again.truth
    assert once.universe.variant != other.universe.variant
    assert len(once.universe) == 90
    assert len(once.universe.variant_members) == 20
    for unit, after in enumerate(once.universe.successors):
        assert all(consumer > unit for consumer in members(after)), "the order is not topological"


@pytest.mark.parametrize("name", MAKERS)
def test_the_truth_is_what_the_compiler_refuses_at_least(name):
    graph = MAKERS[name](3)
    assert graph.refused(graph.universe.everything)
    for culprit in graph.truth:
        assert graph.refused(culprit)
        assert not any(graph.refused(culprit & ~(1 << unit)) for unit in members(culprit))
    without = graph.universe.everything
    for culprit in graph.truth:
        without &= ~culprit
    assert not graph.refused(without)
    assert {size(culprit) for culprit in graph.truth} == {2 if name.endswith("pair") else 1}


@pytest.mark.parametrize("log", Log)
@pytest.mark.parametrize("workers", [1, 4])
def test_the_search_finds_the_truth_in_rounds_of_as_many_calls_as_workers(log, workers):
    for make in MAKERS.values():
        graph = make(4)
        tally = search(graph.universe, compiler_of(graph, log), workers)
        assert tally.found == graph.truth
        assert tally.proven
        assert tally.rounds <= tally.calls <= workers * tally.rounds


def test_probes_of_one_key_are_one_call():
    graph = singles(90, 20, 3, 5)

    def structure(units):
        return tuple(sorted(Counter(graph.universe.variant[unit] for unit in members(units)).items()))

    asked = []

    def compiler(units):
        asked.append(structure(units))
        return compiler_of(graph, Log.OPAQUE)(units)

    tally = search(graph.universe, compiler, key=structure)
    assert tally.found == graph.truth
    assert len(asked) == len(set(asked)) == tally.calls


def test_scans_find_singles_and_no_pair():
    graph, pair = singles(90, 20, 3, 6), far_pair(90, 20, 6)
    for scan, calls in ((peers.each_node, 91), (peers.each_variant, 21)):
        assert scan(graph.universe, graph.refused) == peers.Scan(calls=calls, found=graph.truth)
        assert not scan(pair.universe, pair.refused).found


def test_recursive_bisection_finds_singles_and_blames_an_interval_for_a_far_pair():
    graph, pair = singles(90, 20, 3, 7), far_pair(90, 20, 7)
    scan = peers.recursive_bisection(graph.universe, graph.refused)
    assert scan.found == graph.truth
    assert 2 * len(graph.truth) < scan.calls < 181
    far = peers.recursive_bisection(pair.universe, pair.refused)
    assert far == peers.Scan(calls=3, found=frozenset({pair.universe.everything}))
    assert peers.recursive_bisection(graph.universe, lambda units: False) == peers.Scan(calls=1, found=frozenset())


def test_tables_replace_tables_and_nothing_else():
    document = "before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n"
    once = tables.fill(document, {"a": tables.table(["x", "y"], [["one", 1]])})
    assert once.splitlines()[2:5] == ["| x | y |", "| --- | ---: |", "| one | 1 |"]
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert tables.fill(once, {"a": "old"}) == document
    with pytest.raises(ValueError, match="begin b"):
        tables.fill(document, {"b": ""})


def test_every_table_has_its_place_in_the_document():
    document = (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
    names = ["versions", "generated", "generated-peers", "blocks", "cases", "cases-peers", "engine", "cut"]
    assert tables.fill(document, dict.fromkeys(names, "x")).count("\nx\n") == len(names)


def test_a_subset_is_never_written_into_the_document(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "calls.py"), "--quick", "--write", str(tmp_path / "x.md")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--write is for the whole benchmark" in done.stderr
