"""Keeping ops away from the edge of a cut, for targets that trip over them there and nowhere else.

Where such an op makes an output of the model itself, the target will trip over it, too: there it stays bare in every
cut, and is another question than its like inside of the model.
"""

from collections.abc import Collection
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.rename import tensor_names
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import domain_of
from onnxbisect.universe import Universe

#: What targets drop from a graph, so that its input would be its output.
_PASS_THROUGH = frozenset({"Identity", "Dropout"})

#: What a Relu of any opset takes.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})


def unguarded_outputs(model: Model, ops: Collection[str]) -> frozenset[int]:
    """The units of these op types that make an output of the model."""
    outputs = {value.name for value in model.proto.graph.output}
    nodes = [model.proto.graph.node[unit.node] for unit in model.units]
    return frozenset(
        index for index, node in enumerate(nodes) if _is_one(node, ops) and not outputs.isdisjoint(node.output)
    )


def touching(model: Model, names: Collection[str]) -> frozenset[int]:
    """The units that have one of these names, or read or make a tensor of one."""
    nodes = [model.proto.graph.node[unit.node] for unit in model.units] if names else []
    wanted = frozenset(names)
    return frozenset(
        index for index, node in enumerate(nodes) if not wanted.isdisjoint((node.name, *node.input, *node.output))
    )


def split_variants(universe: Universe, units: Collection[int]) -> Universe:
    """The universe in which these units are variants of their own."""
    return replace(universe, variant=_renumbered(universe.variant, units), solo=_renumbered(universe.solo, units))


def _renumbered(numbers: tuple[int, ...], units: Collection[int]) -> tuple[int, ...]:
    """In order of first sight, without gaps."""
    found: dict[tuple[int, bool], int] = {}
    return tuple(found.setdefault((number, unit in units), len(found)) for unit, number in enumerate(numbers))


def guard_outputs(graph: onnx.GraphProto, ops: Collection[str], own: Collection[str]) -> dict[str, str]:
    """Put a Relu, which nothing folds away, behind every output that an op of these types makes, except for `own`.

    `own` are the model's inputs and outputs. An op that only passes on what the cut made an input is covered although
    its output is the model's: it does not stand so in the model. Returns the new name of each such output and the
    old one. Outputs that are not of floats stay as they are.
    """
    entering = {value.name for value in graph.input} - set(own)
    bare = {
        name
        for node in graph.node
        if _is_one(node, ops)
        for name in node.output
        if name not in own or (_is_one(node, _PASS_THROUGH) and node.input[0] in entering)
    }
    covered = [value for value in graph.output if value.name in bare and value.type.tensor_type.elem_type in _FLOATS]
    if not covered:
        return {}
    taken = tensor_names(graph) | {node.name for node in graph.node}
    new_names = {}
    for value in covered:
        old = value.name
        new = f"{old}_covered"
        while new in taken:
            new += "_"
        taken.add(new)
        graph.value_info.add().CopyFrom(value)
        graph.node.append(helper.make_node("Relu", [old], [new], name=new))
        value.name = new
        new_names[new] = old
    return new_names


def _is_one(node: onnx.NodeProto, ops: Collection[str]) -> bool:
    return node.op_type in ops and not domain_of(node)
