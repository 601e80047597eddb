"""A culprit with its direct neighbours, small enough for a picture."""

from collections.abc import Iterable

from onnxbisect.model.model import Model
from onnxbisect.report.culprit_contents import DrawnEdge, DrawnNode, Role, Surroundings
from onnxbisect.report.facts import Facts
from onnxbisect.unitset import UnitSet, members, size

#: Most units of a culprit that is drawn, and most neighbours on either side.
_DRAWN = 12
_NEIGHBOURS = 4


def surroundings(model: Model, facts: Facts, units: UnitSet) -> Surroundings | None:
    """`nodes` (name, op, role) and `edges` between them (indices into `nodes`, tensor, type); None if too large.

    Roles: `culprit`; `before` and `after` for neighbours; `input` and `output` for the graph's own, whose op is empty.
    """
    if not 0 < size(units) <= _DRAWN:
        return None
    universe, graph = model.universe, model.proto.graph
    inside = list(members(units))
    before = _outside((universe.predecessors[unit] for unit in inside), units)
    after = _outside((universe.successors[unit] for unit in inside), units)
    roles: dict[int, Role] = dict.fromkeys(before[-_NEIGHBOURS:], "before")
    roles |= dict.fromkeys(after[:_NEIGHBOURS], "after")
    roles |= dict.fromkeys(inside, "culprit")
    nodes: list[DrawnNode] = []
    place: dict[int, int] = {}
    producer: dict[str, int] = {}
    for unit in sorted(roles):
        node = graph.node[model.units[unit].node]
        place[unit] = len(nodes)
        producer |= {tensor: unit for tensor in node.output if tensor}
        nodes.append({"name": node.name, "op": universe.op[unit], "role": roles[unit]})
    edges: list[DrawnEdge] = []
    for unit in sorted(roles):
        for tensor in dict.fromkeys(graph.node[model.units[unit].node].input):
            source = producer.get(tensor)
            if source is not None and "culprit" in (roles[unit], roles[source]):
                edges.append(_edge(place[source], place[unit], tensor, facts))
    weights = {tensor.name for tensor in graph.initializer}
    used = {name for unit in inside for name in graph.node[model.units[unit].node].input} - weights
    made = {name: unit for unit in inside for name in graph.node[model.units[unit].node].output}
    for value in [value for value in graph.input if value.name in used][:_NEIGHBOURS]:
        nodes.append({"name": value.name, "op": "", "role": "input"})
        for unit in inside:
            if value.name in graph.node[model.units[unit].node].input:
                edges.append(_edge(len(nodes) - 1, place[unit], value.name, facts))
    for value in [value for value in graph.output if value.name in made][:_NEIGHBOURS]:
        nodes.append({"name": value.name, "op": "", "role": "output"})
        edges.append(_edge(place[made[value.name]], len(nodes) - 1, value.name, facts))
    return {
        "nodes": nodes,
        "edges": edges,
        "hidden_before": max(0, len(before) - _NEIGHBOURS),
        "hidden_after": max(0, len(after) - _NEIGHBOURS),
    }


def _outside(neighbours: Iterable[UnitSet], units: UnitSet) -> list[int]:
    union = 0
    for some in neighbours:
        union |= some
    return list(members(union & ~units))


def _edge(source: int, target: int, tensor: str, facts: Facts) -> DrawnEdge:
    return {"from": source, "to": target, "tensor": tensor, "type": facts.type(tensor)}
