"""Assigns each node of a drawing to a row: below all its producers, and close to its consumers."""

from bisect import bisect_left
from collections.abc import Sequence

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


def groups_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """For each node the first node of its connected component."""
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
