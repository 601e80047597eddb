"""Which row each node of a drawing is in: below all that feeds it, and close above what it feeds."""

from bisect import bisect_left
from collections.abc import Sequence

Edge = tuple[int, int]


def rows_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """For each node its row, from 0. ValueError where the edges go in circles.

    A node that feeds at least as many as feed it comes down to what it feeds: what prepares the weights of a layer is
    beside the layer, not at the top of the model.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in edges:
        after[source].append(target)
        waits[target] += 1
    feeds = waits.copy()
    order = [node for node in range(count) if not waits[node]]
    rows = [0] * count
    for node in order:  # grows while it is read
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


def groups_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """For each node the first node of all that hang together with it."""
    first = list(range(count))

    def find(node: int) -> int:
        while first[node] != node:
            first[node] = first[first[node]]
            node = first[node]
        return node

    for source, target in edges:
        one, other = sorted((find(source), find(target)))
        first[other] = one
    return [find(node) for node in range(count)]


def holds_of(rows: Sequence[int], groups: Sequence[int], edges: Sequence[Edge]) -> list[Edge]:
    """Edges to be added, all from one row to the next, so that the longest path to each node is as long as its row is
    deep: a layout by longest paths then has these rows. They come from what is near in the model.
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
