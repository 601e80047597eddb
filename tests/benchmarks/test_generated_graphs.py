"""The generator tells the truth, and everyone who is compared finds what they should."""

import subprocess
import sys
from pathlib import Path

import pytest

import peers
import tables
from generate import adjacent_pair, at_most, branches, far_pairs, pattern, pattern_in_layers, singles
from onnxbisect.unitset import members, size
from simulated import Log, compiler_of, compiler_seconds, search, structure

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MAKERS = {
    "singles": lambda seed: singles(90, 20, 3, seed),
    "skewed": lambda seed: singles(90, 20, 3, seed, skewed=True),
    "branches": lambda seed: branches(90, 20, 3, seed),
    "adjacent pair": lambda seed: adjacent_pair(90, 20, seed),
    "far pairs": lambda seed: far_pairs(90, 20, 2, seed),
    "far pairs, several times": lambda seed: far_pairs(90, 20, 2, seed, copies=2),
    "pattern": lambda seed: pattern(90, 20, 4, seed),
    "pattern in layers": lambda seed: pattern_in_layers(3, 30, 20, 4, seed),
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
    sizes = {"adjacent pair": 2, "far pairs": 2, "far pairs, several times": 2, "pattern": 4, "pattern in layers": 4}
    assert {size(culprit) for culprit in graph.truth} == {sizes.get(name, 1)}


@pytest.mark.parametrize(("times", "make"), [(1, MAKERS["pattern"]), (3, MAKERS["pattern in layers"])])
def test_a_pattern_is_connected_and_its_ops_are_fine_elsewhere(times, make):
    universe, truth = make(5).universe, make(5).truth
    assert len(truth) == times
    for units in truth:
        reached = units & -units
        for _ in range(size(units)):
            for unit in members(reached):
                reached |= units & (universe.successors[unit] | universe.predecessors[unit])
        assert reached == units
        for unit in members(units):
            assert universe.variant_members[universe.variant[unit]] & ~units


def test_more_than_so_many_of_an_op_are_refused_whichever_they_are():
    graph = at_most(2, 5, 12, 1)
    counted = list(members(graph.counted))
    assert len(counted) == 5
    assert len({graph.universe.variant[unit] for unit in counted}) == 1
    assert not graph.refused(graph.universe.everything & ~graph.counted | 1 << counted[0] | 1 << counted[3])
    assert graph.refused(1 << counted[0] | 1 << counted[2] | 1 << counted[4])
    assert compiler_of(graph, Log.FIRST)(graph.universe.everything).failed


@pytest.mark.parametrize("log", Log)
@pytest.mark.parametrize("workers", [1, 4])
def test_the_search_finds_the_truth_in_rounds_of_as_many_calls_as_workers(log, workers):
    for make in MAKERS.values():
        graph = make(4)
        tally = search(graph.universe, compiler_of(graph, log), workers)
        assert tally.found == graph.truth
        assert tally.proven
        assert tally.rounds <= tally.calls <= workers * tally.rounds


def test_probes_of_one_structure_are_one_call():
    graph = pattern_in_layers(3, 30, 20, 4, 5)
    key = structure(graph.universe)
    asked = []

    def compiler(units):
        asked.append(units)
        return compiler_of(graph, Log.OPAQUE)(units)

    tally = search(graph.universe, compiler, key=key)
    assert tally.found == graph.truth
    assert len(asked) == tally.calls
    assert len(set(asked)) == len({key(units) for units in asked})
    assert sum(units in graph.truth for units in asked) == 1
    assert tally.compiler_seconds == pytest.approx(sum(map(compiler_seconds, asked)))


def test_structures_differ_by_ops_and_by_edges():
    universe = pattern_in_layers(3, 30, 20, 4, 5).universe
    key = structure(universe)
    first, edge = 0b11, 0b110
    assert key(first) == key(first << 30) == key(first << 60)
    assert key(first) != key(edge)
    apart = 0b1 | 0b10 << 30
    assert sorted(universe.variant[unit] for unit in members(apart)) == sorted(
        universe.variant[unit] for unit in members(first)
    )
    assert key(apart) != key(first)


def test_a_call_takes_as_long_as_a_vendors_compiler_does():
    assert compiler_seconds(0b111) == pytest.approx(4, abs=0.1)
    assert compiler_seconds((1 << 500) - 1) == pytest.approx(25, abs=0.2)


def test_scans_find_singles_and_no_pair():
    graph, pair = singles(90, 20, 3, 6), far_pairs(90, 20, 1, 6)
    for scan, calls in ((peers.each_node, 91), (peers.each_variant, 21)):
        assert scan(graph.universe, graph.refused) == peers.Scan(calls=calls, found=graph.truth)
        assert not scan(pair.universe, pair.refused).found


def test_recursive_bisection_finds_singles_and_blames_an_interval_for_a_far_pair():
    graph, pair = singles(90, 20, 3, 7), far_pairs(90, 20, 1, 7)
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
    names = [
        "versions",
        "generated",
        "generated-workers",
        "generated-peers",
        "blocks",
        "cases",
        "cases-peers",
        "rates",
        "engine",
        "cut",
    ]
    assert tables.fill(document, dict.fromkeys(names, "x")).count("\nx\n") == len(names)


def test_a_subset_is_never_written_into_the_document(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "calls.py"), "--quick", "--write", str(tmp_path / "x.md")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--write is for the whole benchmark" in done.stderr
