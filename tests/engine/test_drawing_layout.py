"""Layouts by what a reader would miss: nodes that cover each other, edges that go up, a picture that is another one the
next time.
"""

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.drawing.layout import NODE_HEIGHT, NODE_WIDTH, GraphLayout, layout
from support.examples import examples

Graph = tuple[int, list[tuple[int, int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any directed graph without circles, whose nodes are numbered in no order; some edges are given twice."""
    count = draw(st.integers(0, 40))
    order = draw(st.permutations(range(count)))
    pairs = st.tuples(st.integers(0, max(count - 1, 0)), st.integers(0, max(count - 1, 0)))
    chosen = draw(st.lists(pairs, max_size=80)) if count else []
    return count, [(order[min(pair)], order[max(pair)]) for pair in chosen if pair[0] != pair[1]]


def chain(count: int, *more: tuple[int, int]) -> Graph:
    return count, [*pairwise(range(count)), *more]


def points(edge: tuple[int, int], number: int, of: GraphLayout) -> list[tuple[int, int]]:
    """From the lower side of a node to the upper side of another."""
    source, target = edge
    bends = of.bends[number]
    return [
        (of.x[source], of.y[source] + NODE_HEIGHT // 2),
        *zip(bends[::2], bends[1::2], strict=True),
        (of.x[target], of.y[target] - NODE_HEIGHT // 2),
    ]


def holds(graph: Graph) -> None:
    count, edges = graph
    found = layout(count, edges)
    assert len(found.x) == len(found.y) == count
    places = sorted(zip(found.y, found.x, strict=True))
    for (y, x), (next_y, next_x) in pairwise(places):
        assert next_y - y >= NODE_HEIGHT or (next_y == y and next_x - x >= NODE_WIDTH)
    for number, (source, target) in enumerate(edges):
        assert found.y[source] < found.y[target]
        way = points((source, target), number, found)
        assert all(y <= next_y for (_, y), (_, next_y) in pairwise(way))
        for x, y in way:
            assert 0 <= x <= found.width
            assert 0 <= y <= found.height
    for x, y in zip(found.x, found.y, strict=True):
        assert NODE_WIDTH // 2 <= x <= found.width - NODE_WIDTH // 2
        assert NODE_HEIGHT // 2 <= y <= found.height - NODE_HEIGHT // 2


@given(graphs())
@settings(max_examples=examples(300))
def test_nodes_are_apart_and_edges_go_down(graph: Graph) -> None:
    holds(graph)


@pytest.mark.parametrize(
    "graph",
    [
        (0, []),
        (1, []),
        (30, []),
        chain(200),
        chain(200, (0, 199)),
        chain(200, *((0, node) for node in range(5, 200, 5)), *((1, node) for node in range(7, 200, 6))),
        (90, [(0, node) for node in range(1, 89)] + [(node, 89) for node in range(1, 89)]),
        (40, [(source, target) for source in range(20) for target in range(20, 40)]),
        (60, [*pairwise(range(30)), *pairwise(range(30, 60)), (3, 58)]),
    ],
)
def test_shapes_of_networks(graph: Graph) -> None:
    holds(graph)


@given(graphs())
@settings(max_examples=examples(60))
def test_edges_pass_beside_nodes(graph: Graph) -> None:
    """Where an edge is upright or level it covers no node; slants are between the rows."""
    count, edges = graph
    found = layout(count, edges)
    for number, edge in enumerate(edges):
        for (x, y), (next_x, next_y) in pairwise(points(edge, number, found)):
            for node in set(range(count)) - set(edge):
                beside = (
                    max(x, next_x) < found.x[node] - NODE_WIDTH // 2 or min(x, next_x) > found.x[node] + NODE_WIDTH // 2
                )
                upper, lower = found.y[node] - NODE_HEIGHT // 2, found.y[node] + NODE_HEIGHT // 2
                assert beside or next_y <= upper or y >= lower


def test_what_prepares_a_layers_weights_is_beside_the_layer() -> None:
    count, edges = chain(50)
    found = layout(count + 2, [*edges, (50, 51), (51, 30)])
    assert (found.y[51], found.y[50]) == (found.y[29], found.y[28])


def test_far_edges_of_one_node_share_a_lane() -> None:
    count, edges = chain(300, *((0, node) for node in range(100, 300, 10)))
    found = layout(count, edges)
    lanes = {found.bends[number][2] for number in range(299, len(edges))}
    assert len(lanes) == 1
    assert lanes.pop() > max(found.x) + NODE_WIDTH // 2


def test_a_mask_that_every_layer_reads_costs_nothing() -> None:
    """As lines between the nodes these would be three million points, and minutes."""
    count, edges = chain(4000, *((0, node) for node in range(2, 4000, 2)))
    assert sum(map(len, layout(count, edges).bends)) < 20 * len(edges)


def test_circles_are_refused() -> None:
    with pytest.raises(ValueError, match="circles"):
        layout(3, [(0, 1), (1, 2), (2, 1)])


#: Its nodes with edges have numbers with gaps between them, and it has edges over several rows.
GAPS: Graph = (14, [(0, 13), (1, 2), (2, 3), (0, 3), (0, 1), (0, 2), (0, 4)])


def test_a_graph_has_one_picture() -> None:
    holds(GAPS)
    assert len({layout(*GAPS) for _ in range(400)}) == 1


@given(graphs())
def test_any_graph_has_one_picture(graph: Graph) -> None:
    assert len({layout(*graph) for _ in range(5)}) == 1


def test_it_is_the_same_in_every_process() -> None:
    code = (
        "import random, hashlib; from onnxbisect.drawing.layout import layout; r = random.Random(7);"
        "edges = [tuple(sorted(r.sample(range(300), 2))) for _ in range(450)];"
        "print(hashlib.sha256(repr(layout(300, edges)).encode()).hexdigest())"
    )
    found = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(3)}
    assert len(found) == 1
