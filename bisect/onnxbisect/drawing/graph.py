"""Builds the network, for pictures, of a model that was read."""

from onnxbisect.drawing.network import End, Link, Network
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import constant_names, reads
from onnxbisect.model.unit_properties import UnitProperties
from onnxbisect.report.text import clip, clip_left

#: Most characters; real names are shorter.
_NAME, _FACT, _OP = 300, 400, 120
#: Most facts of a unit; further ones are only counted.
_FACTS = 200


def network_of(model: Model) -> Network:
    """The network of the whole model, which does not depend on a target."""
    graph, facts = model.proto.graph, UnitProperties(model)
    nodes = [graph.node[unit.node] for unit in model.units]
    weights = constant_names(graph)
    maker = {name: unit for unit, node in enumerate(nodes) for name in node.output if name}
    readers: dict[str, list[int]] = {}
    reading = [reads(node) for node in nodes]
    for unit, names in enumerate(reading):
        for name in names:
            readers.setdefault(name, []).append(unit)
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    links: list[Link] = [
        (maker[name], unit, number(name)) for unit, names in enumerate(reading) for name in names if name in maker
    ]
    inputs: list[End] = [
        (number(value.name), readers.get(value.name, [])) for value in graph.input if value.name not in weights
    ]
    outputs: list[End] = [
        (number(value.name), [maker[value.name]] if value.name in maker else []) for value in graph.output
    ]
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    facts_of = []
    for unit in range(len(nodes)):
        listed = list(facts.of(unit, shapes=True).items())
        shown = [(clip(label, _OP), clip(value, _FACT)) for label, value in listed[:_FACTS]]
        if len(listed) > _FACTS:
            shown.append(("…", f"{len(listed) - _FACTS} more"))
        facts_of.append(rows.setdefault(tuple(shown), len(rows)))
    read = [[number(name) for name in names] for names in reading]
    made = [[number(name) for name in node.output if name] for node in nodes]
    return Network(
        name=clip(graph.name, _NAME),
        names=[clip_left(node.name, _NAME) for node in nodes],
        ops=[clip(op, _OP) for op in model.universe.op],
        tensors=[(clip_left(name, _NAME), clip(facts.type(name), _FACT)) for name in numbers],
        links=links,
        inputs=inputs,
        outputs=outputs,
        read=read,
        made=made,
        facts=list(rows),
        facts_of=facts_of,
    )
