"""A repaired place as two small graphs: the replaced nodes, and the new ones."""

from collections.abc import Iterable, Sequence
from typing import Any

from onnxbisect.remedies.document import Change, NodeRow

#: Most nodes of a replacement that is drawn.
_DRAWN = 12


def before_and_after(change: Change) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """In the form of a culprit's surroundings in a report (`report.culprit_facts`).

    None if the graphs are too large or the replacement is a constant. The inputs drawn are the node's own, without the
    replacement's constants.
    """
    if not 0 < len(change.after) <= _DRAWN:
        return None
    before = [*change.removed, change.before]
    made = {_name(it) for row in before for it in row.outputs}
    own = [_name(it) for row in before for it in row.inputs if it and _name(it) not in made]
    return _graph(before, own, "culprit"), _graph(change.after, own, "replaced")


def _graph(rows: Sequence[NodeRow], inputs: Sequence[str], role: str) -> dict[str, Any]:
    nodes = [{"name": row.name, "op": row.op, "role": role} for row in rows]
    made = {_name(it): place for place, row in enumerate(rows) for it in row.outputs if it}
    edges: list[dict[str, Any]] = []
    read: set[str] = set()
    places: dict[str, int] = {}
    for place, row in enumerate(rows):
        for it in _distinct(row.inputs):
            name = _name(it)
            if name in made:
                read.add(name)
                edges.append(_edge(made[name], place, it))
            elif name in inputs:
                if name not in places:
                    places[name] = len(nodes)
                    nodes.append({"name": name, "op": "input", "role": "input"})
                edges.append(_edge(places[name], place, it))
    for place, row in enumerate(rows):
        for it in _distinct(row.outputs):
            if _name(it) not in read:
                nodes.append({"name": _name(it), "op": "output", "role": "output"})
                edges.append(_edge(place, len(nodes) - 1, it))
    return {"nodes": nodes, "edges": edges}


def _distinct(tensors: Iterable[str]) -> list[str]:
    return [it for it in dict.fromkeys(tensors) if it]


def _name(tensor: str) -> str:
    """The tensor's name without its type, which the document appends."""
    return tensor.rpartition(": ")[0] or tensor


def _edge(source: int, target: int, tensor: str) -> dict[str, Any]:
    name = _name(tensor)
    return {"from": source, "to": target, "tensor": name, "type": tensor.removeprefix(name).removeprefix(": ")}
