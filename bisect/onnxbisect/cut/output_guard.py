"""Guard outputs that a target rejects, as some do certain ops only where they make a graph output, or would lose.

Where such an op makes an output of the model itself, the target rejects it there too. So a model output is never
guarded, and the unit that makes it is a variant of its own.
"""

from collections.abc import Collection
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from onnxbisect.cut.rename import tensor_names, unused_name
from onnxbisect.model.binding import is_unbound
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


def join_outputs(graph: onnx.GraphProto, own: Collection[str], *, folds: bool = False) -> dict[str, str]:
    """Append an Add (or And), with a new graph input as second operand, to each output that the target would lose.

    Of nodes that compute the same, the target keeps one and drops the names of the others' results. A target that does
    not fold turns results that depend only on constants into initializers that nothing reads; one that does takes
    those, but not what it computes from sizes afterwards, nor a graph input after a Cast, since it drops Casts. In the
    model, other nodes read these tensors.
    The model's own outputs, `own`, and outputs of dtypes that Add and And do not accept stay unchanged.
    Returns the old name of each changed output by its new name.
    """
    constant = {tensor.name for tensor in graph.initializer}
    constant.update(tensor.values.name for tensor in graph.sparse_initializer)
    constant -= {value.name for value in graph.input}
    for node in graph.node:
        if not bodies(node) and all(name in constant for name in node.input if name):
            constant.update(filter(None, node.output))
    again = _repeated(graph)
    lost = (again | _from_sizes(graph, constant) | _only_cast(graph)) - constant if folds else again | constant
    lost -= set(own)
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


#: Most bytes of an initializer that is compared with others.
_COMPARED = 1 << 10


def _repeated(graph: onnx.GraphProto) -> set[str]:
    """The results of nodes that repeat an earlier one: the same op, attributes and inputs, or ones that do so."""
    first: dict[object, tuple[str, ...]] = {}
    stands_for: dict[str, str] = {}
    for tensor in graph.initializer:
        if tensor.ByteSize() <= _COMPARED:
            value = onnx.TensorProto()
            value.CopyFrom(tensor)
            value.ClearField("name")
            kept = first.setdefault(value.SerializeToString(deterministic=True), (tensor.name,))
            stands_for[tensor.name] = kept[0]
    again: set[str] = set()
    for node in graph.node:
        attributes = tuple(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        inputs = tuple(stands_for.get(name, name) for name in node.input)
        kept = first.setdefault((node.domain, node.op_type, inputs, attributes), tuple(node.output))
        if kept != tuple(node.output):
            stands_for.update(zip(node.output, kept, strict=False))
            again.update(filter(None, node.output))
    return again


def _from_sizes(graph: onnx.GraphProto, constant: Collection[str]) -> set[str]:
    """What nodes compute from nothing but constants and the sizes of tensors that are open, or computed from open ones.

    Where these sizes are known nonetheless, it is a constant, too.
    """
    values = (*graph.value_info, *graph.input, *graph.output)
    is_open = {value.name for value in values if is_unbound(value.type)}
    sizes: set[str] = set()
    for node in graph.node:
        taken = set(filter(None, node.input))
        if _is_one(node, ("Shape",)) and taken <= is_open:
            sizes.update(node.output)
        elif not sizes.isdisjoint(taken) and taken <= sizes.union(constant) and not bodies(node):
            sizes.update(filter(None, node.output))
        elif not is_open.isdisjoint(taken):
            is_open.update(node.output)
    return sizes


def _only_cast(graph: onnx.GraphProto) -> set[str]:
    """The graph's inputs after Casts and nothing else; numbers cast to bool left out, since And takes no others."""
    root = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    cast: set[str] = set()
    for node in graph.node:
        if _is_one(node, ("Cast",)) and node.input[0] in root:
            root[node.output[0]] = root[node.input[0]]
            cast.add(node.output[0])
    bools = {value.name for value in graph.output if value.type.tensor_type.elem_type == TensorProto.BOOL}
    return {name for name in cast if name not in bools or root[name] == TensorProto.BOOL}
