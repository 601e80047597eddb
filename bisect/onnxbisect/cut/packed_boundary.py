"""Give a piece no more inputs and outputs than the target takes: several become one, and the piece computes the same.

A cut lays bare tensors that stand between two nodes of the model, so a piece of few nodes may have more inputs than the
whole model has. Inputs of one dtype become one row of all their elements, which a Split and a Reshape for each take
apart; outputs are joined by a Reshape for each and a Concat.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxbisect.cut.rename import tensor_names, unused_name
from onnxbisect.probe_format import ProbeFormat

#: The nodes have inputs for shapes from opset 5 on, and for the sizes of a Split from 13 on.
_OLDEST, _SIZES_AS_INPUT = 5, 13


def pack_boundary(model: onnx.ModelProto, probe_format: ProbeFormat) -> dict[str, str]:
    """Change `model` in place where it has more inputs or outputs than `probe_format` allows.

    Tensors without elements or of unknown size stay, and so does what has no other of its dtype. Returns the name of
    the tensor by that of each node that was added for it alone.
    """
    graph = model.graph
    opset = next((it.version for it in model.opset_import if it.domain in ("", "ai.onnx")), 0)
    weights = {tensor.name for tensor in graph.initializer} | {it.values.name for it in graph.sparse_initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    names: dict[str, str] = {}
    if opset < _OLDEST:
        return names
    for group in _groups(inputs, probe_format.max_inputs):
        names |= _pack_inputs(graph, group, opset)
    for group in _groups(list(graph.output), probe_format.max_outputs):
        names |= _pack_outputs(graph, group)
    return names


def packed_inputs(graph: onnx.GraphProto) -> Mapping[str, tuple[str, ...]]:
    """The tensors that each packed input consists of, in order."""
    inputs = {value.name for value in graph.input}
    whole = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "Reshape"}
    return {
        node.input[0]: tuple(whole[part] for part in node.output)
        for node in graph.node
        if node.op_type == "Split" and node.name == f"{node.input[0]}_apart" and node.input[0] in inputs
    }


def _groups(values: Sequence[onnx.ValueInfoProto], most: int | None) -> list[list[onnx.ValueInfoProto]]:
    """Groups of values of one dtype to become one each, the largest first, until as few are left as are allowed."""
    if most is None:
        return []
    by_dtype: dict[int, list[onnx.ValueInfoProto]] = {}
    for value in values:
        if value.type.HasField("tensor_type") and all(_shape(value)):
            by_dtype.setdefault(value.type.tensor_type.elem_type, []).append(value)
    chosen, count = [], len(values)
    for group in sorted(by_dtype.values(), key=len, reverse=True):
        if count > most and len(group) > 1:
            chosen.append(group)
            count -= len(group) - 1
    return chosen


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    """The sizes, with 0 for those that are not known."""
    tensor = value.type.tensor_type
    return [dim.dim_value for dim in tensor.shape.dim] if tensor.HasField("shape") else [0]


def _pack_inputs(graph: onnx.GraphProto, group: Sequence[onnx.ValueInfoProto], opset: int) -> dict[str, str]:
    taken = tensor_names(graph) | {node.name for node in graph.node}
    packed = unused_name("packed_inputs", taken)
    sizes = [prod(_shape(value)) for value in group]
    rows = [unused_name(f"{packed}_{number}", taken) for number in range(len(group))]
    split = helper.make_node("Split", [packed], rows, name=f"{packed}_apart", axis=1)
    if opset < _SIZES_AS_INPUT:
        split.attribute.append(helper.make_attribute("split", sizes))
    else:
        split.input.append(_numbers(graph, unused_name(f"{packed}_sizes", taken), sizes))
    added, names = onnx.GraphProto(node=[split]), {}
    for row, value in zip(rows, group, strict=True):
        shape = _numbers(graph, unused_name(f"{row}_shape", taken), _shape(value))
        node = helper.make_node("Reshape", [row, shape], [value.name], name=unused_name(f"{row}_in_shape", taken))
        added.node.append(node)
        names[node.name] = value.name
    first = helper.make_tensor_value_info(packed, group[0].type.tensor_type.elem_type, [1, sum(sizes)])
    graph.value_info.extend(group)
    added.input.extend([*(value for value in graph.input if value not in group), first])
    del graph.input[:]
    graph.input.extend(added.input)
    added.node.extend(graph.node)
    del graph.node[:]
    graph.node.extend(added.node)
    return names


def _pack_outputs(graph: onnx.GraphProto, group: Sequence[onnx.ValueInfoProto]) -> dict[str, str]:
    taken = tensor_names(graph) | {node.name for node in graph.node}
    packed = unused_name("packed_outputs", taken)
    row = _numbers(graph, unused_name(f"{packed}_row", taken), [1, -1])
    names = {}
    rows = []
    for number, value in enumerate(group):
        node = helper.make_node(
            "Reshape", [value.name, row], [unused_name(f"{packed}_{number}", taken)], name=f"{packed}_{number}_as_row"
        )
        rows.append(node.output[0])
        names[node.name] = value.name
        graph.node.append(node)
    graph.node.append(helper.make_node("Concat", rows, [packed], name=f"{packed}_together", axis=1))
    size = sum(prod(_shape(value)) for value in group)
    last = helper.make_tensor_value_info(packed, group[0].type.tensor_type.elem_type, [1, size])
    graph.value_info.extend(group)
    kept = onnx.GraphProto(output=[*(value for value in graph.output if value not in group), last])
    del graph.output[:]
    graph.output.extend(kept.output)
    return names


def _numbers(graph: onnx.GraphProto, name: str, values: Sequence[int]) -> str:
    graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name
