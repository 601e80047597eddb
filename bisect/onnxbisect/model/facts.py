"""What is known about a model's tensors: types, sizes, and the values that no input changes."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model.binding import is_unbound
from onnxbisect.model.external import Stored, array_of, byte_size, stored
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import opset_versions, reads

#: Most elements of a sparse tensor that is made dense.
_LARGEST_DENSE = 1 << 26
_NOTHING: Mapping[str, np.ndarray] = {}


class TensorFacts:
    """Types and constant values of one model's tensors, for rules.

    `known` are values computed from constants, in addition to those that `proto` stores. External data are read from
    `folder` only when a rule needs their values.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        types: Mapping[str, onnx.TypeProto],
        known: Mapping[str, np.ndarray] = _NOTHING,
        folder: Path = Path(),
    ) -> None:
        self._types, self._known, self.folder = types, known, folder
        self.ir_version = proto.ir_version
        self.functions = tuple(proto.functions)
        self.opsets = opset_versions(proto.opset_import)
        self._proto = proto

    @classmethod
    def of(cls, model: Model) -> "TensorFacts":
        """The facts found when the model was loaded."""
        return cls(model.proto, model.types, model.known, model.path.parent)

    @classmethod
    def inferred(
        cls, proto: onnx.ModelProto, folder: Path = Path(), known: Mapping[str, np.ndarray] = _NOTHING
    ) -> "TensorFacts":
        """The facts from onnx's shape inference, for a model that was not loaded."""
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
        types = {value.name: value.type for value in [*graph.value_info, *graph.input, *graph.output]}
        return cls(proto, types, known, folder)

    def extended(self, types: Mapping[str, onnx.TypeProto], stored: Iterable[onnx.TensorProto]) -> "TensorFacts":
        """These facts and the tensors of a replacement."""
        result = copy(self)
        result._types = {**self._types, **types}
        result._stored = {**self._stored, **{tensor.name: tensor for tensor in stored}}
        return result

    def type(self, tensor: str) -> onnx.TypeProto | None:
        """The tensor's type; None if unknown."""
        if tensor in self._types:
            return self._types[tensor]
        held = self._stored.get(tensor)
        if held is not None:
            values = held if isinstance(held, onnx.TensorProto) else held.values
            return onnx.helper.make_tensor_type_proto(values.data_type, list(held.dims))
        array = self._known.get(tensor)
        if array is None:
            return None
        return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    @cached_property
    def read(self) -> frozenset[str]:
        """The tensors that nodes read, and the outputs."""
        graph = self._proto.graph
        return frozenset(name for node in graph.node for name in reads(node)) | {value.name for value in graph.output}

    def dtype(self, tensor: str) -> int | None:
        """The ONNX element type of a tensor; None if it is unknown or the value is no tensor."""
        kind = self.type(tensor)
        return (kind.tensor_type.elem_type or None) if kind is not None and kind.HasField("tensor_type") else None

    def shape(self, tensor: str) -> tuple[int | None, ...] | None:
        """The dimensions, None for each that is not fixed; None if the rank is unknown."""
        kind = self.type(tensor)
        return None if kind is None else fixed_dims(kind)

    def is_constant(self, tensor: str) -> bool:
        """Whether no input changes the tensor; this does not read its data."""
        return tensor in self._known or tensor in self._stored

    def value(self, tensor: str) -> np.ndarray | None:
        """The value of a tensor that no input changes; None for any other."""
        if tensor in self._known:
            return self._known[tensor]
        held = self._stored.get(tensor)
        if held is None:
            return None
        if isinstance(held, onnx.TensorProto):
            return array_of(held, self.folder)
        # Dense, unless that is too large or an index is out of range.
        if prod(held.dims) > _LARGEST_DENSE:
            return None
        values, indices = array_of(held.values, self.folder), array_of(held.indices, self.folder)
        dense = np.zeros(tuple(held.dims), values.dtype)
        sizes = np.array(dense.shape if indices.ndim > 1 else dense.size)
        if np.any((indices < 0) | (indices >= sizes)):
            return None
        dense[np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)] = values
        return dense

    def value_up_to(self, tensor: str, most: int) -> np.ndarray | None:
        """As `value`; None also for a tensor of more than `most` elements, which is not read."""
        shape = self.shape(tensor)
        small = shape is not None and prod(most + 1 if dim is None else dim for dim in shape) <= most
        return self.value(tensor) if small else None

    def stored(self, tensor: str) -> Stored | None:
        """The tensor as the model stores it, dense or sparse; None for one that it does not store."""
        return self._stored.get(tensor)

    def maker(self, tensor: str) -> onnx.NodeProto | None:
        """The node of the graph that computes a tensor."""
        return self._makers.get(tensor)

    def readers(self, tensor: str) -> Sequence[onnx.NodeProto]:
        """The nodes of the graph that read a tensor, themselves or in a subgraph."""
        return self._readers.get(tensor, ())

    def is_output(self, tensor: str) -> bool:
        """Whether the tensor is a graph output."""
        return any(value.name == tensor for value in self._proto.graph.output)

    def in_order(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes in the order of the graph."""
        return sorted(nodes, key=lambda node: self._places[node.output[0]])

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: place for place, node in enumerate(self._proto.graph.node) for name in node.output}

    @cached_property
    def _makers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self._proto.graph.node for name in node.output if name}

    @cached_property
    def _readers(self) -> Mapping[str, Sequence[onnx.NodeProto]]:
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self._proto.graph.node:
            for name in reads(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def _stored(self) -> Mapping[str, Stored]:
        return stored(self._proto)


def with_sizes_of(sure: onnx.TypeProto | None, kind: onnx.TypeProto) -> onnx.TypeProto:
    """The type, with those sizes only that the type `sure` has, if it has as many dimensions."""
    opened = onnx.TypeProto()
    opened.CopyFrom(kind)
    dims = opened.tensor_type.shape.dim if opened.HasField("tensor_type") else []
    sizes = fixed_dims(sure) if sure is not None else None
    if sizes is None or len(sizes) != len(dims):
        sizes = (None,) * len(dims)
    for dim, size in zip(dims, sizes, strict=True):
        dim.Clear()
        if size is not None:
            dim.dim_value = size
    return opened


def size_of(kind: onnx.TypeProto | None) -> int | None:
    """Bytes of a tensor of this type; None where dtype or shape is unknown."""
    if kind is None or not kind.HasField("tensor_type") or is_unbound(kind):
        return None
    return byte_size(kind.tensor_type.elem_type, dims_of(kind))


def with_rank(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape with so many dimensions: with ones in front, or with the leading ones merged."""
    more = rank - len(shape)
    return (*[1] * more, *shape) if more >= 0 else (prod(shape[: 1 - more]), *shape[1 - more :])


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
