"""Guard outputs that a target rejects, as some do certain ops only where they make a graph output, or would lose.

Where such an op makes an output of the model itself, the target rejects it there too. So a model output is never
guarded, and the unit that makes it is a variant of its own.
"""

from collections.abc import Collection
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.rename import tensor_names, unused_name
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies, domain_of
from onnxbisect.universe import Universe

#: Ops that targets drop, which would make a graph input also a graph output.
_PASS_THROUGH = frozenset({"Identity", "Dropout"})

#: Dtypes that Relu accepts in every opset.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})

#: Dtypes that Add accepts in every opset.
_NUMBERS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64})


def unguarded_outputs(model: Model, ops: Collection[str]) -> frozenset[int]:
    """The units of these op types that make an output of the model."""
    outputs = {value.name for value in model.proto.graph.output}
    nodes = [model.proto.graph.node[unit.node] for unit in model.units]
    return frozenset(
        index for index, node in enumerate(nodes) if _is_one(node, ops) and not outputs.isdisjoint(node.output)
    )


def touching(model: Model, names: Collection[str]) -> frozenset[int]:
    """The units that have one of these node names, or read or make one of these tensors."""
    nodes = [model.proto.graph.node[unit.node] for unit in model.units] if names else []
    wanted = frozenset(names)
    return frozenset(
        index for index, node in enumerate(nodes) if not wanted.isdisjoint((node.name, *node.input, *node.output))
    )


def split_variants(universe: Universe, units: Collection[int]) -> Universe:
    """The universe with `units` separated from other units of the same variant and solo."""
    return replace(
        universe,
        variant=_renumbered(universe.variant, units),
        solo=_renumbered(universe.solo, units),
        valueless=_renumbered(universe.valueless, units),
    )


def _renumbered(numbers: tuple[int, ...], units: Collection[int]) -> tuple[int, ...]:
    """Number the pairs (old number, whether in `units`) by first appearance, without gaps."""
    found: dict[tuple[int, bool], int] = {}
    return tuple(found.setdefault((number, unit in units), len(found)) for unit, number in enumerate(numbers))


def guard_outputs(graph: onnx.GraphProto, ops: Collection[str], own: Collection[str]) -> dict[str, str]:
    """Append a Relu, which targets do not fold away, to each float output that an op of these types makes.

    The model's own inputs and outputs, `own`, stay unguarded, with one exception: a model output made by an Identity or
    Dropout whose input became a graph input through the cut. Outputs that are not floats stay unchanged.
    Returns the old name of each guarded output by its new name.
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
        new = unused_name(f"{old}_covered", taken)
        graph.value_info.add().CopyFrom(value)
        graph.node.append(helper.make_node("Relu", [old], [new], name=new))
        value.name = new
        new_names[new] = old
    return new_names


def accompany(graph: onnx.GraphProto, ops: Collection[str]) -> dict[str, str]:
    """Append a Relu to each float output of a graph that has nodes of these types and Constants only.

    Between other nodes the target rejects such a node, and alone it does not, so the verdict would be about the cut.
    Returns the old name of each guarded output by its new name.
    """
    if not ops or not all(_is_one(node, (*ops, "Constant")) for node in graph.node):
        return {}
    return guard_outputs(graph, ops, own=())


def _is_one(node: onnx.NodeProto, ops: Collection[str]) -> bool:
    return node.op_type in ops and not domain_of(node)


def join_outputs(graph: onnx.GraphProto, own: Collection[str]) -> dict[str, str]:
    """Append an Add (or And), with a new graph input as second operand, to each output that the target would lose.

    The target turns results that depend only on constants into initializers that nothing reads. Of nodes that compute
    the same, it keeps one and drops the names of the others' results. In the model, other nodes read these tensors.
    The model's own outputs, `own`, and outputs of dtypes that Add and And do not accept stay unchanged.
    Returns the old name of each changed output by its new name.
    """
    # the results of nodes that repeat an earlier node: same op, inputs and attributes
    seen: set[tuple[str, str, tuple[str, ...], tuple[bytes, ...]]] = set()
    again: set[str] = set()
    for node in graph.node:
        attributes = tuple(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        same = (node.domain, node.op_type, tuple(node.input), attributes)
        if same in seen:
            again.update(filter(None, node.output))
        seen.add(same)
    constant = {tensor.name for tensor in graph.initializer}
    constant.update(tensor.values.name for tensor in graph.sparse_initializer)
    constant -= {value.name for value in graph.input}
    for node in graph.node:
        if not bodies(node) and all(name in constant for name in node.input if name):
            constant.update(filter(None, node.output))
    lost = (constant | again) - set(own)
    covered = [value for value in graph.output if value.name in lost and _joined_by(value)]
    if not covered:
        return {}
    taken = tensor_names(graph) | {node.name for node in graph.node}
    new_names = {}
    for value in covered:
        old, tensor = value.name, value.type.tensor_type
        new, beside = (unused_name(f"{old}_{word}", taken) for word in ("covered", "beside"))
        graph.value_info.add().CopyFrom(value)
        graph.node.append(helper.make_node(_joined_by(value), [old, beside], [new], name=new))
        graph.input.append(helper.make_tensor_value_info(beside, tensor.elem_type, [1]))
        if tensor.HasField("shape") and not tensor.shape.dim:
            tensor.shape.dim.add().dim_value = 1
        value.name = new
        new_names[new] = old
    return new_names


def _joined_by(value: onnx.ValueInfoProto) -> str:
    """The op that combines the tensor with another of its dtype; empty for dtypes not supported in every opset."""
    kind = value.type.tensor_type.elem_type
    if kind == TensorProto.BOOL:
        return "And"
    return "Add" if kind in _NUMBERS else ""
