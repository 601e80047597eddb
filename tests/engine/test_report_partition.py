"""Pieces on random graphs: convex, in running order, complete, and few."""

from hypothesis import given

from onnxbisect.report.document import pieces
from onnxbisect.unitset import UnitSet, members, of
from onnxbisect.universe import Universe
from support.engine.small_graphs import graphs, reachable, universe_of


def stages_needed(universe: Universe, inside: UnitSet) -> int:
    """The longest alternation on any path: no cut into convex pieces that run in order can have fewer."""
    depth = [0] * len(universe)
    for unit in range(len(universe)):
        entered = [
            depth[before] + (bool(inside >> unit & 1) and not inside >> before & 1)
            for before in members(universe.predecessors[unit])
        ]
        depth[unit] = max([*entered, inside >> unit & 1])
    return max(depth, default=0)


@given(graphs())
def test_pieces_are_convex_ordered_complete_and_as_few_as_can_be(graph):
    universe, inside = graph
    found = pieces(universe, inside)
    union = 0
    for piece in found:
        assert piece
        assert not union & piece
        union |= piece
        outside = reachable(universe, piece) & ~piece
        assert not reachable(universe, outside) & piece, "a path leaves the piece and comes back"
    assert union == inside
    for i, later in enumerate(found):
        assert not any(reachable(universe, later) & earlier for earlier in found[:i]), "a piece feeds an earlier one"
    assert len(found) <= stages_needed(universe, inside)


def test_a_side_branch_joins_the_piece_that_consumes_it():
    # 0 → 1(culprit) → 2 → 4, 3 → 4: unit 3 needs nothing and waits for the second piece.
    universe = universe_of([of([1]), of([2]), of([4]), of([4]), 0])
    assert pieces(universe, of([0, 2, 3, 4])) == (of([0]), of([2, 3, 4]))


def test_a_piece_that_would_wait_for_itself_is_cut():
    # 0 → 1(culprit) → 2 and 0 → 2: one piece of {0, 2} would need its own output.
    universe = universe_of([of([1, 2]), of([2]), 0])
    assert pieces(universe, of([0, 2])) == (of([0]), of([2]))
