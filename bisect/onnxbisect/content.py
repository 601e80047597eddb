"""Digests of nodes and tensors that ignore names, so that they agree across positions and models."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from itertools import count
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxbisect.model.external import array_of, is_external, place_of
from onnxbisect.model.scopes import captures, domain_of

#: Length of a digest in bytes.
DIGEST_SIZE = 32
#: Most elements of a constant whose value can belong to the support question.
SMALL = 64

#: Returns the name-independent identifier of an outer tensor.
Rename = Callable[[str], str]


def digest(*parts: object) -> bytes:
    """32 bytes for any nesting of tuples, bytes, strings, numbers, booleans and None."""
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def array_digest(array: np.ndarray) -> bytes:
    """The dtype, shape and exact bits of a value."""
    if array.dtype.kind in "OSU":
        return digest(array.shape, array.ravel().tolist())
    return digest(
        array.dtype.str, array.shape, blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()
    )


def is_telling(array: np.ndarray) -> bool:
    """Whether a small constant's value belongs to the support question in any slot.

    It does for integers (axes, indices, sizes) and scalars (exponents, bounds), not for small weights and biases.
    """
    return array.size <= SMALL and (array.dtype.kind not in "fcV" or array.size == 1)


class Contents:
    """Digests of the parts of one model; `weights` tells whether the values of large constants count."""

    def __init__(self, model: onnx.ModelProto, folder: Path, *, weights: bool) -> None:
        self._folder = folder
        self._weights = weights
        self._opsets = {_plain(opset.domain): opset.version for opset in model.opset_import}
        self._functions = {
            (domain_of(function), function.name, function.overload): function for function in model.functions
        }
        self._known_functions: dict[tuple[str, str, str], bytes] = {}

    def node(self, node: onnx.NodeProto) -> bytes:
        """A digest of a node without its wiring: operator, version, attributes, and which slots are omitted."""
        outer = {name: str(number) for number, name in enumerate(captures(node))}
        return digest(
            self._operator(node),
            self._attributes(node.attribute, outer.__getitem__),
            [bool(name) for name in node.input],
            len(outer),
            [bool(name) for name in node.output],
        )

    def tensor(self, tensor: TensorProto, *, with_value: bool) -> bytes:
        """A digest of a stored tensor: dtype and shape, and its value if `with_value`."""
        value: bytes | None = None
        if with_value and is_external(tensor):
            path, offset, left = place_of(tensor, self._folder)
            running = blake2b(digest_size=32)
            with path.open("rb") as file:
                file.seek(offset)
                while left > 0 and (chunk := file.read(min(left, 8 << 20))):
                    running.update(chunk)
                    left -= len(chunk)
            value = running.digest()
        elif with_value:
            value = array_digest(numpy_helper.to_array(tensor))
        return digest(tensor.data_type, tuple(tensor.dims), value)

    def array(self, tensor: TensorProto, most: int = SMALL) -> np.ndarray | None:
        """The value of a stored tensor; None where it has more than `most` elements."""
        if prod(tensor.dims) > most:
            return None
        return array_of(tensor, self._folder)

    def sparse(self, sparse: onnx.SparseTensorProto) -> bytes:
        """A digest of a sparse tensor; values and indices count as weights."""
        values, indices = (self.tensor(part, with_value=self._weights) for part in (sparse.values, sparse.indices))
        return digest(tuple(sparse.dims), values, indices)

    def _stored(self, tensor: TensorProto) -> bytes:
        """A digest of a tensor inside an attribute or a subgraph, which no other node can share."""
        return self.tensor(tensor, with_value=self._weights or prod(tensor.dims) <= SMALL)

    def _operator(self, node: onnx.NodeProto) -> object:
        call = (domain_of(node), node.op_type, node.overload)
        if call not in self._functions:
            return (*call, self._opsets.get(call[0], 0))
        if call not in self._known_functions:
            # Recursive functions are invalid; in a file that has one, the inner call is represented by its name.
            self._known_functions[call] = b""
            function, names = self._functions[call], _Names(str)
            names.add(function.input)
            self._known_functions[call] = digest(
                len(function.input),
                list(function.attribute),
                self._attributes(function.attribute_proto, str),
                sorted((_plain(opset.domain), opset.version) for opset in function.opset_import),
                self._nodes(function.node, names),
                [names[name] for name in function.output],
            )
        return (*call, self._known_functions[call])

    def _nodes(self, nodes: Iterable[onnx.NodeProto], names: "_Names") -> object:
        digests = []
        for node in nodes:
            inputs = [names[name] for name in node.input]
            outputs = [bool(name) for name in node.output]
            digests.append((self._operator(node), self._attributes(node.attribute, names.__getitem__), inputs, outputs))
            names.add(node.output)
        return digests

    def _attributes(self, attributes: Iterable[AttributeProto], outer: Rename) -> object:
        return sorted((attribute.name, self._attribute(attribute, outer)) for attribute in attributes)

    def _attribute(self, attribute: AttributeProto, outer: Rename) -> bytes:
        kind = AttributeProto.UNDEFINED if attribute.ref_attr_name else attribute.type
        if kind == AttributeProto.GRAPH:
            return self._graph(attribute.g, outer)
        if kind == AttributeProto.GRAPHS:
            return digest([self._graph(graph, outer) for graph in attribute.graphs])
        if kind == AttributeProto.TENSOR:
            return self._stored(attribute.t)
        if kind == AttributeProto.TENSORS:
            return digest([self._stored(tensor) for tensor in attribute.tensors])
        if kind == AttributeProto.SPARSE_TENSOR:
            return self.sparse(attribute.sparse_tensor)
        if not attribute.doc_string:
            return bytes(attribute.SerializeToString(deterministic=True))
        bare = AttributeProto()
        bare.CopyFrom(attribute)
        bare.ClearField("doc_string")
        return bytes(bare.SerializeToString(deterministic=True))

    def _graph(self, graph: onnx.GraphProto, outer: Rename) -> bytes:
        names = _Names(outer)
        names.add(value.name for value in graph.input)
        names.add(tensor.name for tensor in graph.initializer)
        names.add(sparse.values.name for sparse in graph.sparse_initializer)
        return digest(
            [value.type.SerializeToString(deterministic=True) for value in graph.input],
            [self._stored(tensor) for tensor in graph.initializer],
            [self.sparse(sparse) for sparse in graph.sparse_initializer],
            self._nodes(graph.node, names),
            [names[value.name] for value in graph.output],
        )


class _Names:
    """Name-independent identifiers in a subgraph: numbers by appearance, and `outer` before those of outer tensors."""

    def __init__(self, outer: Rename) -> None:
        self._numbers: dict[str, str] = {}
        self._next = count()
        self._outer = outer

    def add(self, names: Iterable[str]) -> None:
        # An initializer that is also an input appears twice: the second number stands.
        self._numbers.update((name, str(next(self._next))) for name in names)

    def __getitem__(self, name: str) -> str:
        if not name:
            return ""
        number = self._numbers.get(name)
        return f"outer {self._outer(name)}" if number is None else number


def type_bytes(types: Mapping[str, onnx.TypeProto], name: str) -> bytes:
    """The encoded type of a tensor; empty where it is unknown."""
    return types[name].SerializeToString(deterministic=True) if name in types else b""


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
