"""What became of each module of the network: `/image_encoder` compiles, `/prompt_encoder` has Sin, Cos, Abs."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from onnxbisect.model.model import Model
from onnxbisect.model.modules import parts, path_of_node, spelled
from onnxbisect.report.names import op_name
from onnxbisect.report.ranges import spell
from onnxbisect.report.states import States
from onnxbisect.report.text import plural
from onnxbisect.unitset import UnitSet, members, size

#: Modules that are shown to people, and ops of each.
SHOWN, _OPS = 12, 8


def module_entries(model: Model, known: States) -> list[dict[str, Any]]:
    """The largest modules that the network consists of; none where nodes do not say that there are several."""
    graph = model.proto.graph
    paths = {number: path_of_node(graph.node[unit.node]) for number, unit in enumerate(model.units)}
    return [
        {
            "name": spelled(path) if path else "",
            "size": size(units),
            "units": spell(units),
            "verdict": _verdict(units, known),
            "refused": _ops(model, units & known.culprit),
            "suspected": _ops(model, units & known.suspected),
            "unknown": size(units & known.unknown),
        }
        for path, units in parts(paths).items()
    ]


def worth_showing(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The modules, those that do not compile first, where some do and some do not; else the ops say as much."""
    modules = document.get("modules", [])  # reports of earlier versions have none
    if len({module["verdict"] == "pass" for module in modules}) < 2:
        return []
    return sorted(modules, key=lambda module: module["verdict"] == "pass")


def name_of(module: Mapping[str, Any]) -> str:
    """`/decoder`, or what nodes are called that are in none."""
    return str(module["name"]) or "in no module"


def answer(module: Mapping[str, Any]) -> str:
    """`compiles`; `Sin, Cos, Abs 5`; `5 units unknown`."""
    if module["verdict"] == "pass":
        return "compiles"
    named = [f"{it['op']}{_times(it['nodes'])}" for it in module["refused"]]
    named += [f"{it['op']}{_times(it['nodes'])} suspected" for it in module["suspected"]]
    more = [f"{len(named) - _OPS} more"] if len(named) > _OPS else []
    unknown = [f"{plural(module['unknown'], 'unit')} unknown"] if module["unknown"] else []
    return ", ".join([*named[:_OPS], *more, *unknown])


def _verdict(units: UnitSet, known: States) -> str:
    if units & known.culprit:
        return "fail"
    return "unknown" if units & (known.suspected | known.unknown) else "pass"


def _ops(model: Model, units: UnitSet) -> list[dict[str, Any]]:
    nodes = (model.proto.graph.node[model.units[unit].node] for unit in members(units))
    counted = Counter(op_name(node.domain, node.op_type) for node in nodes)
    return [{"op": op, "nodes": count} for op, count in counted.items()]


def _times(count: int) -> str:
    return f" {count}" if count > 1 else ""
