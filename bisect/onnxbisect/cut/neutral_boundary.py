"""Give the inputs and outputs of a graph a form that the target takes, and compute the same behind them.

A target may take no graph input of rank 0, or none of bool, though both are fine between two nodes. Such an input gets
leading dimensions of 1 and a Squeeze behind it, or a dtype that the target takes and a Cast behind it; such an output
gets an Unsqueeze, or a Cast. Where the target takes no rank of 5, the leading dimensions become one, with a Reshape.
The nodes keep their tensors: only what stands at the boundary has a new name.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxbisect.cut.rename import tensor_names, unused_name
from onnxbisect.cut.required_producers import runtime_dtype
from onnxbisect.exactness import Exactness
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.scopes import reads
from onnxbisect.probe_format import ProbeFormat

#: From this opset on, axes are an input of Squeeze and Unsqueeze.
_AXES_AS_INPUT = 13
#: From this opset on, the shape is an input of Reshape.
_SHAPE_AS_INPUT = 5

#: What stands in for a dtype that the target does not take at a boundary: the first of these that it takes.
_FOR_INTEGERS = ("int64", "int32", "uint8", "int8", "float", "double", "float16")
_FOR_FLOATS = ("float", "double", "float16")
_INTEGERS = frozenset({"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})
_FLOATS = frozenset({"float16", "bfloat16", "float", "double"})

#: How many bits of a number each float type keeps.
_SIGNIFICANT_BITS: dict[int, int] = {
    TensorProto.BFLOAT16: 8,
    TensorProto.FLOAT16: 11,
    TensorProto.FLOAT: 24,
    TensorProto.DOUBLE: 53,
}

#: An op, its attributes, and the initializer that is its second input.
_Step = tuple[str, dict[str, Any], TensorProto | None]


def neutral_type(value: onnx.ValueInfoProto, probe_format: ProbeFormat, *, output: bool) -> onnx.TypeProto | None:
    """The type that a graph input or output gets for this target; None where it keeps its own.

    Tensors of unknown dtype or rank keep theirs, and so do values that are no tensors.
    """
    if not value.type.HasField("tensor_type"):
        return None
    dtypes, rank, most = (
        (probe_format.output_dtypes, probe_format.min_output_rank, probe_format.max_output_rank)
        if output
        else (probe_format.input_dtypes, probe_format.min_input_rank, probe_format.max_input_rank)
    )
    changed = onnx.TypeProto()
    changed.CopyFrom(value.type)
    tensor = changed.tensor_type
    if dtypes is not None and (name := runtime_dtype(value.type)) not in dtypes:
        candidates = _FOR_INTEGERS if name in _INTEGERS else _FOR_FLOATS if name in _FLOATS else ()
        stand_in = next((it for it in candidates if it in dtypes), None)
        if stand_in is not None:
            tensor.elem_type = TensorProto.DataType.Value(stand_in.upper())
    missing = rank - len(tensor.shape.dim) if tensor.HasField("shape") else 0
    surplus = len(tensor.shape.dim) - max(most, 1) if most is not None else 0
    sizes = [] if is_unbound(value.type) else [dim.dim_value for dim in tensor.shape.dim]
    if surplus > 0 and sizes and all(sizes):
        tensor.shape.dim[surplus].dim_value = prod(sizes[: surplus + 1])
        del tensor.shape.dim[:surplus]
    if missing > 0:
        dims = [onnx.TensorShapeProto.Dimension(dim_value=1) for _ in range(missing)]
        dims.extend(value.type.tensor_type.shape.dim)
        tensor.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    return None if changed == value.type else changed


def exactness_of(before: onnx.TypeProto, after: onnx.TypeProto) -> Exactness:
    """How much of its numbers a graph input or output keeps in another element type."""
    bits, left = (_SIGNIFICANT_BITS.get(kind.tensor_type.elem_type) for kind in (before, after))
    if bits is None or left is None or bits <= left:
        return Exactness.EXACT
    return Exactness.ROUNDING if after.tensor_type.elem_type == TensorProto.FLOAT else Exactness.APPROXIMATE


def make_neutral(model: onnx.ModelProto, probe_format: ProbeFormat) -> dict[str, str]:
    """Change the boundary of `model` in place where the target does not take it; initializers stay inputs as they are.

    Returns the old name of each changed input and output by its new one, and by the names of the nodes that were added.
    """
    graph = model.graph
    opset = next((it.version for it in model.opset_import if it.domain in ("", "ai.onnx")), 0)
    weights = {tensor.name for tensor in graph.initializer} | {it.values.name for it in graph.sparse_initializer}
    quantized = _read_by_dequantize_linear_only(graph)
    undressed = replace(probe_format, input_dtypes=None)
    boundary = [
        (value, undressed if value.name in quantized else probe_format, False)
        for value in graph.input
        if value.name not in weights
    ]
    boundary += [(value, probe_format, True) for value in graph.output]
    changing = [
        (value, kind, output)
        for value, form, output in boundary
        if (kind := neutral_type(value, form, output=output)) is not None
    ]
    if not opset or not changing:
        return {}
    taken = tensor_names(graph) | {node.name for node in graph.node}
    declared = {value.name for value in graph.value_info}
    old_names: dict[str, str] = {}
    before, after = onnx.GraphProto(), onnx.GraphProto()
    for value, kind, output in changing:
        inner = onnx.ValueInfoProto()
        inner.CopyFrom(value)
        steps = list(_steps(inner.type, kind, opset) if output else _steps(kind, inner.type, opset))
        names = [unused_name(f"{inner.name}_{'as_output' if output else 'as_input'}", taken) for _ in steps]
        old_names.update(dict.fromkeys(names, inner.name))
        # the boundary has the first of these names; further ones stand between the two nodes
        tensors = [inner.name, *names[:0:-1], names[0]] if output else [*names, inner.name]
        for place, (op, attributes, operand) in enumerate(steps):
            read = [tensors[place]]
            if operand is not None:
                operand.name = unused_name(f"{names[place]}_axes", taken)
                graph.initializer.append(operand)
                read.append(operand.name)
            node = helper.make_node(op, read, [tensors[place + 1]], name=names[place], **attributes)
            (after if output else before).node.append(node)
        if inner.name not in declared:
            declared.add(inner.name)
            graph.value_info.append(inner)
        value.name = names[0]
        value.type.CopyFrom(kind)
    nodes = onnx.GraphProto(node=[*before.node, *graph.node, *after.node])
    del graph.node[:]
    graph.node.extend(nodes.node)
    return old_names


def _read_by_dequantize_linear_only(graph: onnx.GraphProto) -> frozenset[str]:
    """Tensors that keep their dtype at a boundary: tools that take quantized models expect DequantizeLinear to read
    integers, and RKNN-Toolkit2 2.3.2, which takes no input of int8 elsewhere, crashes on a Cast to int8.
    """
    read: set[str] = set()
    others: set[str] = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type == "DequantizeLinear":
            read.add(node.input[0])
            others.update(node.input[1:])
        else:
            others.update(reads(node))
    return frozenset(read - others)


def _steps(given: onnx.TypeProto, wanted: onnx.TypeProto, opset: int) -> Iterator[_Step]:
    """The nodes that make a tensor of the type `wanted` out of one of `given`."""
    old, new = given.tensor_type, wanted.tensor_type
    if old.elem_type != new.elem_type:
        yield "Cast", {"to": new.elem_type}, None
    missing = len(new.shape.dim) - len(old.shape.dim)
    shapes = [[dim.dim_value for dim in it.shape.dim] for it in (old, new)]
    few, many = sorted(shapes, key=len)
    if missing and many != [1] * abs(missing) + few:
        if opset < _SHAPE_AS_INPUT:
            yield "Reshape", {"shape": shapes[1]}, None
        else:
            yield "Reshape", {}, numpy_helper.from_array(np.array(shapes[1], np.int64))
    elif missing:
        op, axes = "Unsqueeze" if missing > 0 else "Squeeze", list(range(abs(missing)))
        if opset < _AXES_AS_INPUT:
            yield op, {"axes": axes}, None
        else:
            yield op, {}, numpy_helper.from_array(np.array(axes, np.int64))
