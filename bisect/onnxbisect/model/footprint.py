"""How much memory a run would need, from inferred types."""

from collections.abc import Mapping
from math import prod

import onnx

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import byte_size
from onnxbisect.model.scopes import reads


def size_of(kind: onnx.TypeProto | None) -> int | None:
    """Bytes of a tensor of this type; None where the type does not say."""
    if kind is None or not kind.HasField("tensor_type") or is_unbound(kind):
        return None
    return byte_size(kind.tensor_type.elem_type, dims_of(kind))


def dims_of(kind: onnx.TypeProto) -> tuple[int, ...]:
    """The dimensions of a tensor type that has them all."""
    return tuple(dim.dim_value for dim in kind.tensor_type.shape.dim)


def elements(kind: onnx.TypeProto) -> int:
    """The number of elements of a tensor type that has all its dimensions."""
    return prod(dims_of(kind))


def peak(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> int:
    """The most bytes that tensors computed by nodes in this order hold at one time.

    Graph inputs are held throughout, any other tensor until its last reader is done. Tensors
    of unknown size count as nothing, so this is a lower bound.
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
