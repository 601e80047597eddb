"""Which units are left to the NPU: what compiled together, and few pieces of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.errors import CutError
from onnxbisect.split import PieceKind, PieceUnits
from onnxbisect.split.choose import Work, ancestors, choose, descendants, total
from onnxbisect.split.schedule import schedule
from onnxbisect.unitset import UnitSet, is_subset, members, of, union
from onnxbisect.universe import Universe
from support.engine.small_graphs import cost, demand_runnable, graphs, universe_of


def line(count: int) -> Universe:
    """0 → 1 → 2 …"""
    return universe_of([of([unit + 1]) if unit < count - 1 else 0 for unit in range(count)])


def without(universe: Universe, *units: int) -> list[UnitSet]:
    """What passed: all but these."""
    return [universe.everything & ~of(units)]


def told(parts: tuple[PieceUnits, ...]) -> list[tuple[str, list[int]]]:
    return [(part.kind.value, list(members(part.units))) for part in parts]


def even(universe: Universe) -> Work:
    return np.ones(len(universe))


def test_a_culprit_in_the_middle_makes_three_pieces():
    universe = line(20)
    parts = choose(universe, universe.everything, without(universe, 10), even(universe))
    assert told(parts) == [("npu", list(range(10))), ("host", [10]), ("npu", list(range(11, 20)))]


def test_a_short_prefix_moves_to_the_host_as_a_whole():
    universe = line(40)
    parts = choose(universe, universe.everything, without(universe, 2), even(universe))
    assert told(parts) == [("host", [0, 1, 2]), ("npu", list(range(3, 40)))]


def test_a_short_suffix_moves_to_the_host_as_a_whole():
    universe = line(40)
    parts = choose(universe, universe.everything, without(universe, 37), even(universe))
    assert told(parts) == [("npu", list(range(37))), ("host", [37, 38, 39])]


def test_both_ends_may_move():
    universe = line(60)
    parts = choose(universe, universe.everything, without(universe, 1, 58), even(universe))
    assert [part.kind for part in parts] == [PieceKind.HOST, PieceKind.NPU, PieceKind.HOST]


def test_it_is_work_that_makes_a_prefix_short_and_not_nodes():
    universe = line(10)
    light = np.array([1.0] * 6 + [100.0] * 4)
    parts = choose(universe, universe.everything, without(universe, 5), light)
    assert told(parts)[-1] == ("npu", [6, 7, 8, 9])
    assert len(parts) == 2
    heavy = light[::-1]
    assert len(choose(universe, universe.everything, without(universe, 5), heavy)) == 2
    assert len(choose(universe, universe.everything, without(universe, 8), light)) == 3


def test_nothing_moves_with_a_share_of_none():
    universe = line(40)
    parts = choose(universe, universe.everything, without(universe, 2), even(universe), share=0)
    assert [part.kind for part in parts] == [PieceKind.NPU, PieceKind.HOST, PieceKind.NPU]


def test_a_side_branch_that_a_culprit_does_not_touch_stays_with_the_rest():
    # 0 → 1(culprit) → 2 → 29, and 3 → 4 → … → 29: unit 0 is all that stands before the culprit.
    after = [of([1]), of([2]), of([29]), *(of([unit + 1]) for unit in range(3, 29)), 0]
    universe = universe_of(after)
    parts = choose(universe, universe.everything, without(universe, 1), even(universe))
    assert told(parts) == [("host", [0, 1]), ("npu", list(range(2, 30)))]


def test_the_npu_runs_only_what_compiled_together():
    # each of 1 and 2 compiles without the other
    universe = line(4)
    passed = [of([0, 1, 3]), of([0, 2, 3]), of([0])]
    work = np.array([2.0, 1.0, 5.0, 1.0])
    parts = choose(universe, universe.everything, passed, work, share=0.12)
    assert told(parts) == [("npu", [0]), ("host", [1]), ("npu", [2, 3])]
    # where the host may not have a ninth of the work, a cut between the two leaves it nothing
    parts = choose(universe, universe.everything, passed, work, share=0.05)
    assert told(parts) == [("npu", [0, 1]), ("npu", [2, 3])]


def test_what_was_seen_to_compile_as_it_is_wins_where_all_else_is_equal():
    universe = line(5)
    passed = [of([0, 2, 3, 4]), of([0, 1, 2, 4]), of([0, 1, 2])]
    parts = choose(universe, universe.everything, passed, even(universe), share=0.5)
    assert told(parts) == [("npu", [0, 1, 2]), ("host", [3, 4])]


def test_a_model_of_which_nothing_compiles_is_refused():
    universe = line(2)
    with pytest.raises(CutError, match="nothing for the NPU"):
        choose(universe, universe.everything, [], even(universe))


def test_what_cannot_take_what_the_host_makes_is_on_the_host_too():
    # 2 needs 1 beside it: the target takes no input of that dtype
    universe = replace(line(6), required_producers={2: of([1])})
    parts = choose(universe, universe.everything, without(universe, 1), even(universe), share=0)
    assert told(parts) == [("npu", [0]), ("host", [1, 2]), ("npu", [3, 4, 5])]


def test_what_was_seen_to_compile_needs_no_more():
    universe = replace(line(6), required_producers={2: of([1])})
    passed = [*without(universe, 1), of([2, 3, 4, 5])]
    parts = choose(universe, universe.everything, passed, even(universe), share=0)
    assert told(parts) == [("npu", [0]), ("host", [1]), ("npu", [2, 3, 4, 5])]


def test_a_target_that_takes_so_much_at_a_time_gets_one_piece_after_the_other():
    universe = line(20)
    # 7 is refused; at most six units compile together
    passed = [of(range(0, 6)), of(range(5, 7)), of(range(8, 14)), of(range(13, 18)), of(range(16, 20)), of([3])]
    parts = choose(universe, universe.everything, passed, even(universe))
    assert told(parts) == [
        ("npu", [0, 1, 2, 3, 4, 5]),
        ("npu", [6]),
        ("host", [7]),
        ("npu", [8, 9, 10, 11, 12, 13]),
        ("npu", [14, 15, 16, 17]),
        ("npu", [18, 19]),
    ]


@st.composite
def situations(draw: st.DrawFn) -> tuple[Universe, list[UnitSet], Work, float]:
    universe, one = draw(graphs())
    count = len(universe)
    others = draw(st.lists(st.integers(1, universe.everything), max_size=3))
    work = np.array(draw(st.lists(st.integers(1, 50), min_size=count, max_size=count)), np.float64)
    return universe, [one or 1, *others], work, draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))


@given(situations(), st.data())
def test_parts_have_what_they_need_or_were_seen_without(situation, data):
    universe, passed, work, share = situation
    makers = {unit: data.draw(st.integers(0, universe.predecessors[unit])) for unit in range(len(universe))}
    needs = {unit: makers[unit] & universe.predecessors[unit] for unit in makers}
    try:
        parts = choose(replace(universe, required_producers=needs), universe.everything, passed, work, share)
    except CutError:
        return
    demand_runnable(universe, parts)
    for part in parts:
        if part.kind is PieceKind.NPU and part.units not in passed:
            assert is_subset(union(needs[unit] for unit in members(part.units)), part.units)


@given(situations())
def test_choices_run_and_keep_their_promises(situation):
    universe, passed, work, share = situation
    parts = choose(universe, universe.everything, passed, work, share)
    demand_runnable(universe, parts)
    npu = union(part.units for part in parts if part.kind is PieceKind.NPU)
    assert npu
    assert union(part.units for part in parts) == universe.everything
    most = max(total(work, units) for units in passed)
    assert total(work, npu) >= (1 - share) * most - 1e-9
    if not any(is_subset(npu, units) for units in passed):
        assert all(any(is_subset(it.units, units) for units in passed) for it in parts if it.kind is PieceKind.NPU)
        assert total(work, npu) * (1 - share) > most - 1e-9
        return
    for units in passed:
        if total(work, units) == most:
            assert cost(parts) <= cost(schedule(universe, units, universe.everything & ~units))
        for ends in (ancestors, descendants):
            reached = ends(universe)
            left = universe.everything & ~union(reached[unit] for unit in members(universe.everything & ~units))
            if left and total(work, left) >= (1 - share) * most:
                assert cost(parts)[0] == 1, "a prefix or suffix is short enough to leave one piece"
