"""Entries of a report for the modules of the network, with their results."""

from collections import Counter
from typing import Literal

from onnxbisect.model.model import Model
from onnxbisect.model.modules import parts, path_of_node, spelled
from onnxbisect.report.contents import ModuleEntry, OpCount
from onnxbisect.report.names import op_name
from onnxbisect.report.ranges import spell
from onnxbisect.report.states import States
from onnxbisect.unitset import UnitSet, members, size


def module_entries(model: Model, known: States) -> list[ModuleEntry]:
    """The largest modules of the network; empty if node names show no more than one."""
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


def _verdict(units: UnitSet, known: States) -> Literal["pass", "fail", "unknown"]:
    if units & known.culprit:
        return "fail"
    return "unknown" if units & (known.suspected | known.unknown) else "pass"


def _ops(model: Model, units: UnitSet) -> list[OpCount]:
    nodes = (model.proto.graph.node[model.units[unit].node] for unit in members(units))
    counted = Counter(op_name(node.domain, node.op_type) for node in nodes)
    return [{"op": op, "nodes": count} for op, count in counted.items()]
