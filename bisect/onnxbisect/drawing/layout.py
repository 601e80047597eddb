"""Positions of the nodes and edges of a drawing, in pixels; rows run from top to bottom.

Edges over a few rows pass between the nodes. Longer ones run in lanes at the right side, one lane for each source node.
Otherwise a mask that every layer of a network reads would be as many lines through the whole drawing.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from fast_sugiyama import from_edges

from onnxbisect.unitset import groups_of

Edge = tuple[int, int]


def rows_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """The row of each node, from 0. ValueError if the edges have a cycle.

    A node with at least as many consumers as producers is moved down to its consumers, so that nodes that prepare a
    layer's weights are next to the layer and not at the top of the model.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in edges:
        after[source].append(target)
        waits[target] += 1
    feeds = waits.copy()
    order = [node for node in range(count) if not waits[node]]
    rows = [0] * count
    for node in order:  # grows during iteration
        for target in after[node]:
            rows[target] = max(rows[target], rows[node] + 1)
            waits[target] -= 1
            if not waits[target]:
                order.append(target)
    if len(order) < count:
        raise ValueError("A drawing's edges must not go in circles.")
    for node in reversed(order):
        if after[node] and len(after[node]) >= feeds[node]:
            rows[node] = min(rows[target] for target in after[node]) - 1
    return rows


def holds_of(rows: Sequence[int], groups: Sequence[int], edges: Sequence[Edge]) -> list[Edge]:
    """Additional edges, each from one row to the next, so that the longest path to each node has the length of its row.

    A layout by longest paths then has these rows. The edges connect nodes that are near each other in the model.
    """
    held = [row == 0 for row in rows]
    near = list(range(len(rows)))
    for source, target in edges:
        held[target] = held[target] or rows[source] == rows[target] - 1
        near[source] = min(near[source], target) if near[source] != source else target
    there: dict[Edge, list[int]] = {}
    for node, row in enumerate(rows):
        there.setdefault((groups[node], row), []).append(node)
    holds = []
    for node, is_held in enumerate(held):
        if not is_held:
            above = there[groups[node], rows[node] - 1]
            holds.append((above[min(bisect_left(above, near[node]), len(above) - 1)], node))
    return holds


NODE_WIDTH, NODE_HEIGHT = 150, 34
_GAP_X, _GAP_Y = 24, 40
_STEP_X, _STEP_Y = NODE_WIDTH + _GAP_X, NODE_HEIGHT + _GAP_Y
#: Width of a passing edge, as a fraction of a node's.
_PASSING = 0.2
_LANE = 12
#: Edges over more rows run in lanes, and so do the longest of the others if there are too many for each node.
_FAR = 40
_PASSING_EACH = 4

#: x, y, x, y, … between an edge's ends.
Bends = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GraphLayout:
    """The centres of the nodes, and each edge's bends between its source's lower and its target's upper side."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    bends: tuple[Bends, ...]
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The layout of one connected component by itself."""

    x: Mapping[int, int]
    y: Mapping[int, int]
    bends: Mapping[Edge, Bends]
    width: int
    height: int


def layout(count: int, edges: Sequence[Edge]) -> GraphLayout:
    """The layout of nodes `0 … count-1`, deterministic and fast for any edges.

    ValueError if the edges have a cycle.
    """
    distinct = sorted(set(edges))
    rows, groups = rows_of(count, distinct), groups_of(count, distinct)
    # the edges that do not run in lanes
    near = []
    room = _PASSING_EACH * count
    for edge in sorted(distinct, key=lambda edge: (rows[edge[1]] - rows[edge[0]], edge)):
        span = rows[edge[1]] - rows[edge[0]]
        room -= span - 1
        if span > _FAR or room < 0:
            break
        near.append(edge)
    near.sort()
    columns, paths = _columns(rows, groups, near)
    nodes_of: dict[int, list[int]] = {}
    for node, group in enumerate(groups):
        nodes_of.setdefault(group, []).append(node)
    edges_of: dict[int, list[Edge]] = {group: [] for group in nodes_of}
    for edge in distinct:
        edges_of[groups[edge[0]]].append(edge)
    parts = [_part(nodes, edges_of[group], rows, columns, paths) for group, nodes in nodes_of.items()]
    return _together(count, edges, parts)


def _columns(
    rows: Sequence[int], groups: Sequence[int], near: Sequence[Edge]
) -> tuple[dict[int, float], dict[Edge, list[float]]]:
    """The column of each node, and for each near edge its columns in the rows that it passes.

    Columns of one group are at least 1 apart; edges keep a smaller distance.
    """
    columns = dict.fromkeys(range(len(rows)), 0.0)
    paths: dict[Edge, list[float]] = {}
    right: dict[int, float] = {}
    edges = [*near, *holds_of(rows, groups, near)]
    component_of = groups_of(len(rows), edges)
    components: dict[int, list[Edge]] = {}
    for edge in edges:
        components.setdefault(component_of[edge[0]], []).append(edge)
    for first, component in components.items():
        start = right.get(groups[first], 0.0)
        found, passing = _connected(component)
        columns |= {node: start + at for node, at in found.items()}
        paths |= {edge: [start + at for at in path] for edge, path in passing.items()}
        right[groups[first]] = start + 1 + max(*found.values(), *(at for path in passing.values() for at in path))
    return columns, paths


def _connected(edges: Sequence[Edge]) -> tuple[dict[int, float], dict[Edge, list[float]]]:
    """As `_columns`, from 0, for one connected component.

    `from_edges` numbers the vertices that it adds where an edge passes a row. These numbers differ from the nodes' only
    if the nodes are numbered without gaps and connected.
    """
    nodes = sorted({node for edge in edges for node in edge})
    number_of = {node: number for number, node in enumerate(nodes)}
    [(positions, _, _, links)] = from_edges(
        [(number_of[source], number_of[target]) for source, target in edges],
        vertex_spacing=1,
        dummy_vertices=True,
        dummy_size=_PASSING,
        ranking_type="up",  # rows by longest paths, which `holds_of` makes equal to ours
        transpose=False,  # takes most of the time and removes few crossings
        check_layout=False,
    )
    x = {int(vertex): float(place[0]) for vertex, place in positions}
    steps = [(int(source), int(target)) for source, target in links or ()]
    count = len(nodes)
    onward = {source: target for source, target in steps if source >= count}
    paths: dict[Edge, list[float]] = {}
    for source, at in steps:
        if source < count <= at:
            path = []
            while at >= count:
                path.append(x[at])
                at = onward[at]
            paths[nodes[source], nodes[at]] = path
    return {node: x[number] for number, node in enumerate(nodes)}, paths


def _part(
    nodes: Sequence[int],
    edges: Sequence[Edge],
    rows: Sequence[int],
    columns: Mapping[int, float],
    paths: Mapping[Edge, Sequence[float]],
) -> _Part:
    used = [columns[node] for node in nodes] + [at for edge in edges for at in paths.get(edge, ())]
    left = min(used)
    x = {node: round((columns[node] - left) * _STEP_X) + NODE_WIDTH // 2 for node in nodes}
    end: dict[int, int] = {}
    for node in sorted(x, key=lambda node: (x[node], node)):
        # of tens of thousands of unordered nodes, a pair can get the same position
        x[node] = max(x[node], end.get(rows[node], 0))
        end[rows[node]] = x[node] + NODE_WIDTH + 2
    y = {node: rows[node] * _STEP_Y + NODE_HEIGHT // 2 for node in nodes}
    width = max(round((max(used) - left) * _STEP_X), max(x.values()) - NODE_WIDTH // 2) + NODE_WIDTH
    height = max(y.values()) + NODE_HEIGHT // 2
    bends: dict[Edge, Bends] = {}
    far: list[Edge] = []
    for edge in edges:
        source, target = edge
        if edge in paths:
            path = [round((at - left) * _STEP_X) + NODE_WIDTH // 2 for at in paths[edge]]
            bends[edge] = _passing(x[source], y[source], path, x[target])
        elif rows[target] - rows[source] > 1:
            far.append(edge)
        else:
            bends[edge] = ()
    lanes = _lanes(rows, far)
    for source, target in far:
        lane = width + _LANE * (1 + lanes[source])
        out, back = y[source] + _STEP_Y // 2, y[target] - _STEP_Y // 2
        bends[source, target] = (x[source], out, lane, out, lane, back, x[target], back)
    if far:
        width += _LANE * (2 + max(lanes.values()))
    return _Part(x=x, y=y, bends=bends, width=width, height=height)


def _passing(x: int, y: int, path: Sequence[int], end: int) -> Bends:
    """Bends of an edge that is vertical beside nodes and slanted only between rows."""
    bends: list[int] = []
    columns = [x, *path, end]
    for number, at in enumerate(path, 1):
        middle = y + number * _STEP_Y
        if columns[number - 1] != at:
            bends += (at, middle - NODE_HEIGHT // 2)
        if columns[number + 1] != at:
            bends += (at, middle + NODE_HEIGHT // 2)
    return tuple(bends)


def _lanes(rows: Sequence[int], far: Sequence[Edge]) -> dict[int, int]:
    """The lane of each node with far edges: nodes whose edges overlap in rows have different lanes."""
    until: dict[int, int] = {}
    for source, target in far:
        until[source] = max(until.get(source, 0), rows[target])
    lanes: dict[int, int] = {}
    free: list[int] = []
    for source in sorted(until, key=lambda source: (rows[source], source)):
        lane = next((lane for lane, row in enumerate(free) if row <= rows[source]), len(free))
        free[lane : lane + 1] = [until[source]]
        lanes[source] = lane
    return lanes


def _together(count: int, edges: Sequence[Edge], parts: Sequence[_Part]) -> GraphLayout:
    """Place parts below each other while they are no higher than the highest part, or the whole no higher than wide."""
    most = max(
        max((part.height for part in parts), default=0),
        isqrt(sum((part.width + _GAP_X) * (part.height + _GAP_Y) for part in parts)),
    )
    x, y = [0] * count, [0] * count
    moved: dict[Edge, Bends] = {}
    left = top = wide = height = 0
    for part in parts:
        if top and top + part.height > most:
            left, top, wide = left + wide + _GAP_X, 0, 0
        for node in part.x:
            x[node], y[node] = part.x[node] + left, part.y[node] + top
        for edge, bends in part.bends.items():
            moved[edge] = tuple(at + (top if number % 2 else left) for number, at in enumerate(bends))
        wide, height = max(wide, part.width), max(height, top + part.height)
        top += part.height + _GAP_Y
    return GraphLayout(
        x=tuple(x),
        y=tuple(y),
        bends=tuple(moved[edge] for edge in edges),
        width=left + wide,
        height=height,
    )
