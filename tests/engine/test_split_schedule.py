"""Orders of pieces on random graphs, against all orders that there are."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.split import PieceKind, PieceUnits, schedule
from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe
from support.engine.small_graphs import cost, demand_runnable, graphs, universe_of


def fewest(universe: Universe, npu: UnitSet) -> tuple[int, int]:
    """NPU pieces and pieces of the best order, by trying all: step 0 runs on the host, step 1 on the NPU, and so on."""
    count = len(universe)
    edges = [(unit, after) for unit in range(count) for after in members(universe.successors[unit])]
    costs = []
    for steps in product(range(count + 1), repeat=count):
        if all(steps[unit] % 2 == npu >> unit & 1 for unit in range(count)) and all(
            steps[unit] <= steps[after] for unit, after in edges
        ):
            taken = set(steps)
            costs.append((sum(step % 2 for step in taken), len(taken)))
    return min(costs)


@given(graphs())
def test_parts_can_run_in_order_alternate_and_are_complete(graph):
    universe, npu = graph
    parts = schedule(universe, npu, universe.everything & ~npu)
    demand_runnable(universe, parts)
    assert of(unit for part in parts if part.kind is PieceKind.NPU for unit in members(part.units)) == npu
    assert of(unit for part in parts for unit in members(part.units)) == universe.everything
    assert all(before.kind is not after.kind for before, after in pairwise(parts))


@st.composite
def small_graphs(draw: st.DrawFn) -> tuple[Universe, UnitSet]:
    count = draw(st.integers(1, 6))
    after = [of(j for j in range(i + 1, count) if draw(st.booleans())) for i in range(count)]
    return universe_of(after), draw(st.integers(0, (1 << count) - 1))


@given(small_graphs())
def test_no_order_has_fewer_npu_parts_nor_fewer_parts(graph):
    universe, npu = graph
    assert cost(schedule(universe, npu, universe.everything & ~npu)) == fewest(universe, npu)


def test_units_in_neither_set_are_left_out():
    universe = universe_of([of([1]), of([2]), 0])
    assert schedule(universe, of([2]), of([0])) == (
        PieceUnits(kind=PieceKind.HOST, units=of([0])),
        PieceUnits(kind=PieceKind.NPU, units=of([2])),
    )


def test_the_host_waits_where_that_saves_a_part():
    # 0 → 1(host) → 2 and 3(host) → 2: the host need not run before the NPU has begun.
    universe = universe_of([of([1]), of([2]), 0, of([2])])
    kinds = [part.kind for part in schedule(universe, of([0, 2]), of([1, 3]))]
    assert kinds == [PieceKind.NPU, PieceKind.HOST, PieceKind.NPU]


@pytest.mark.parametrize("kind", [PieceKind.NPU, PieceKind.HOST])
def test_all_in_one_place_is_one_part(kind: PieceKind):
    universe = universe_of([of([1]), 0])
    sets = {PieceKind.NPU: (universe.everything, 0), PieceKind.HOST: (0, universe.everything)}[kind]
    assert schedule(universe, *sets) == (PieceUnits(kind=kind, units=universe.everything),)
