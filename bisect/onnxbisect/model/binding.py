"""Bind the dimensions of the graph's inputs to numbers that the user gives."""

import re
from collections.abc import Mapping, Sequence

import onnx

from onnxbisect.errors import ModelError
from onnxbisect.language import did_you_mean

#: What exporters write for a dimension that they do not know, which says nothing about other dimensions: `?`, `-1`,
#: `None`, `unk__12`, `unknown_dim`.
_NAMELESS = re.compile(
    r"[\W\d_]*|(unk|unknown|none|null|nan|undefined|dynamic|dyn)[\W\d_]*((dim|axis|size)[\W\d_]*)?", re.I
)


def bind(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[tuple[str, int]]]:
    """Write the given shapes into the graph's inputs.

    A given number also replaces a number in the file, because models are compiled at other sizes than they were
    exported with (`resized`). A symbol such as `batch` that is bound in one input is bound in all inputs that use it,
    unless the given shapes disagree about it: returns for each such symbol the inputs and their sizes. It says too much
    then, and onnxruntime does not enforce it.
    Negative dimensions, written by old exporters, count as dynamic; zero is a number. The caller must have removed
    initializers from the inputs.
    Raises ModelError for an unknown input and for shapes that contradict the model.
    """
    inputs = {value.name: value for value in graph.input}
    symbols: dict[str, list[tuple[str, int]]] = {}
    for name, dims in shapes.items():
        if name not in inputs:
            raise ModelError(
                f"A shape is given for {name!r}, which is no input of the model; its inputs are "
                f"{', '.join(map(repr, inputs)) or 'none'}{did_you_mean(name, list(inputs))}"
            )
        value, sizes = inputs[name], [int(dim) for dim in dims]
        text = ",".join(map(str, sizes))
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"--input-shape {value.name}={text}: this input is no tensor and has no shape.")
        if any(size < 0 for size in sizes):
            raise ModelError(f"--input-shape {value.name}={text}: dimensions are numbers from 0 on.")
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in sizes)
        if len(tensor.shape.dim) != len(sizes):
            raise ModelError(
                f"--input-shape {value.name}={text} has {len(sizes)} dimensions, and the model's input has "
                f"{len(tensor.shape.dim)}: {onnx.helper.printable_type(value.type)}."
            )
        for slot, size in zip(tensor.shape.dim, sizes, strict=True):
            if names_dimension(slot.dim_param):
                symbols.setdefault(slot.dim_param, []).append((name, size))
            slot.dim_value = size
        if not sizes:
            tensor.shape.SetInParent()
    disputed = {symbol: bound for symbol, bound in symbols.items() if len({size for _, size in bound}) > 1}
    for value in graph.input:
        for dim in _dims(value):
            if dim.dim_param in symbols and dim.dim_param not in disputed:
                dim.dim_value = symbols[dim.dim_param][0][1]
    return disputed


def names_dimension(symbol: str) -> bool:
    """Whether a dimension's symbol is the name of one dimension, wherever it occurs; false for an empty one."""
    return _NAMELESS.fullmatch(symbol) is None


def unbound_inputs(graph: onnx.GraphProto) -> tuple[str, ...]:
    """The inputs that have a dynamic dimension."""
    return tuple(value.name for value in graph.input if is_unbound(value.type))


def resized(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shape in the file of each input for which `shapes` changes a fixed dimension."""
    found = {}
    for value in graph.input:
        dims = list(_dims(value))
        wanted = [int(dim) for dim in shapes.get(value.name, ())]
        numbers = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in dims]
        if len(wanted) == len(numbers) and any(
            old is not None and old != new for old, new in zip(numbers, wanted, strict=True)
        ):
            found[value.name] = tuple(-1 if number is None else number for number in numbers)
    return found


def forget_shapes(graph: onnx.GraphProto) -> None:
    """Remove the shapes that the file declares for tensors other than its inputs."""
    for value in (*graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def is_unbound(kind: onnx.TypeProto) -> bool:
    """Whether a tensor type lacks a shape or has a dimension without a number; false for sequences and optionals."""
    if kind.WhichOneof("value") != "tensor_type":
        return False
    tensor = kind.tensor_type
    return not tensor.HasField("shape") or any(
        not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim
    )


def _dims(value: onnx.ValueInfoProto) -> "Sequence[onnx.TensorShapeProto.Dimension]":
    return value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ()
