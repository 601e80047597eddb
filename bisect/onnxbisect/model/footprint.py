"""Estimate from inferred types how much memory a run needs."""

from collections.abc import Mapping
from math import prod

import onnx

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import byte_size
from onnxbisect.model.scopes import reads


def size_of(kind: onnx.TypeProto | None) -> int | None:
    """Bytes of a tensor of this type; None where dtype or shape is unknown."""
    if kind is None or not kind.HasField("tensor_type") or is_unbound(kind):
        return None
    return byte_size(kind.tensor_type.elem_type, dims_of(kind))


def dims_of(kind: onnx.TypeProto) -> tuple[int, ...]:
    """The dimensions of a tensor type; all must be known."""
    return tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)


def fixed_dims(kind: onnx.TypeProto) -> tuple[int | None, ...] | None:
    """The dimensions of a tensor type, None for each without a number; None where not even the rank is known."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim)


def elements(kind: onnx.TypeProto) -> int:
    """The number of elements of a tensor type; all its dimensions must be known."""
    return prod(dims_of(kind))


def peak(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> int:
    """A lower bound, in bytes, of the peak memory for tensors when the nodes run in this order.

    Graph inputs are held throughout, other tensors until their last reader has run. Tensors of unknown size count
    as 0.
    """
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        last.update(dict.fromkeys((*node.output, *reads(node)), index))
    ends: list[list[int]] = [[] for _ in graph.node]
    held = highest = sum(size_of(value.type) or 0 for value in graph.input)
    for index, node in enumerate(graph.node):
        for name in node.output:
            size = size_of(types.get(name)) if name else None
            if size:
                held += size
                ends[last[name]].append(size)
        highest = max(highest, held)
        held -= sum(ends[index])
    return highest
