"""Group units by support question: variants, and solos, which also agree in shapes."""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from enum import Enum, auto
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxbisect.model.external import array_of, forms, stored
from onnxbisect.model.scopes import bodies, domain_of, opset_versions, reads
from onnxbisect.model.shapeops import SEMANTIC_SLOTS, SHAPE_SLOTS

#: Most elements of a zero point that is read: enough for one per channel, too few for one per block of a large weight.
ZERO_POINTS = 1 << 16

_ONE = (2, 4)  # x, its scale and zero point; those of the output
_TWO = (2, 5, 7)  # a, its scale and zero point; b, likewise; those of the output

#: Input slots of the zero points, by domain and op, of ONNX and onnxruntime 1.31. The other constants of these ops are
#: scales, weights or biases. Ops that quantise only large weights, such as MatMulNBits, are left out: large constants
#: never distinguish variants.
ZERO_POINT_SLOTS: dict[tuple[str, str], Container[int]] = {
    ("", "ConvInteger"): (2, 3),
    ("", "DequantizeLinear"): (2,),
    ("", "MatMulInteger"): (2, 3),
    ("", "QLinearConv"): _TWO,
    ("", "QLinearMatMul"): _TWO,
    ("", "QuantizeLinear"): (2,),
    ("com.microsoft", "DequantizeLinear"): (2,),
    ("com.microsoft", "DequantizeWithOrder"): (),
    ("com.microsoft", "DynamicQuantizeLSTM"): (9, 11),
    ("com.microsoft", "DynamicQuantizeMatMul"): (3,),
    ("com.microsoft", "GemmFloat8"): (),
    ("com.microsoft", "MatMulInteger16"): (),
    ("com.microsoft", "MatMulIntegerToFloat"): (4, 5),
    ("com.microsoft", "MulInteger"): (1, 3),
    ("com.microsoft", "QAttention"): (6, 7),
    ("com.microsoft", "QEmbedLayerNormalization"): range(13, 18),
    ("com.microsoft", "QGemm"): (2, 5, 8),
    ("com.microsoft", "QLinearAdd"): _TWO,
    ("com.microsoft", "QLinearAveragePool"): _ONE,
    ("com.microsoft", "QLinearConcat"): range(1, 1 << 30, 3),  # those of the output; then x, scale and zero point each
    ("com.microsoft", "QLinearConv"): _TWO,
    ("com.microsoft", "QLinearGlobalAveragePool"): _ONE,
    ("com.microsoft", "QLinearLeakyRelu"): _ONE,
    ("com.microsoft", "QLinearMul"): _TWO,
    ("com.microsoft", "QLinearReduceMean"): _ONE,
    ("com.microsoft", "QLinearSigmoid"): _ONE,
    ("com.microsoft", "QLinearSoftmax"): _ONE,
    ("com.microsoft", "QLinearWhere"): (3, 6, 8),
    ("com.microsoft", "QOrderedAttention"): (),
    ("com.microsoft", "QOrderedGelu"): (),
    ("com.microsoft", "QOrderedLayerNormalization"): (),
    ("com.microsoft", "QOrderedLongformerAttention"): (),
    ("com.microsoft", "QOrderedMatMul"): (),
    ("com.microsoft", "QuantizeLinear"): (2,),
    ("com.microsoft", "QuantizeWithOrder"): (),
}


#: Most elements of a constant whose value can distinguish variants.
_SMALL = 64
_AttributeType = onnx.AttributeProto.AttributeType


class _ValueMatters(Enum):
    """When a small constant's value distinguishes variants."""

    ALWAYS = auto()
    IF_INTEGER_OR_SCALAR = auto()
    WHETHER_ZERO = auto()
    NEVER = auto()


class Variants:
    """Computes for each node of a model hashable keys: equal keys mean the same support question."""

    def __init__(
        self, proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto], known: Mapping[str, np.ndarray], folder: Path
    ) -> None:
        self._types, self._known, self._folder = types, known, folder
        self._versions = opset_versions(proto.opset_import)
        self._constants, self._forms = stored(proto), forms(proto)

    def variant(self, node: onnx.NodeProto) -> Hashable:
        """Op, domain, overload, opset, attributes; dtype, rank and constness of each input; type of each output.

        What a tensor is filled with counts as 0 or not.
        """
        return self._question(node, _value_matters)

    def valueless(self, node: onnx.NodeProto) -> Hashable:
        """The variant without the values of constants that the node reads."""
        return self._question(node, lambda _, slot: _ValueMatters.NEVER)

    def _question(self, node: onnx.NodeProto, matters: Callable[[onnx.NodeProto, int], _ValueMatters]) -> Hashable:
        domain = domain_of(node)
        inputs = tuple(
            self._source(name, matters(node, slot)) if name else None for slot, name in enumerate(_trimmed(node.input))
        )
        body_names = {name: f"input {slot}" for slot, name in reversed(list(enumerate(node.input))) if name}
        captured = [name for name in reads(node) if name not in body_names]
        body_names |= {name: f"capture {number}" for number, name in enumerate(captured)}
        return (
            domain,
            node.op_type,
            node.overload,
            self._versions.get(domain, 0),
            _attributes(node, body_names.__getitem__),
            inputs,
            tuple(self._source(name, _ValueMatters.IF_INTEGER_OR_SCALAR) for name in captured),
            tuple(self._rank(name) if name else None for name in _trimmed(node.output)),
        )

    def solo(self, node: onnx.NodeProto) -> Hashable:
        """Shapes, small values, form and sharing of all tensors that the node reads and writes.

        Variant and solo together identify the probe of the node alone.
        """
        captured = [name for name in reads(node) if name not in node.input]
        names = [*node.input, *captured]
        matters = [
            *(_value_matters(node, slot) for slot in range(len(node.input))),
            *(_ValueMatters.IF_INTEGER_OR_SCALAR for _ in captured),
        ]
        kinds = (self._types.get(name) if name else None for name in (*names, *_trimmed(node.output)))
        return (
            tuple(names.index(name) for name in names),
            tuple(self._forms.get(name) for name in names),
            tuple(None if it is None else it.SerializeToString(deterministic=True) for it in kinds),
            tuple(self._value(name, how) for name, how in zip(names, matters, strict=True) if name in self._known),
        )

    def _source(self, name: str, matters: _ValueMatters) -> Hashable:
        """dtype, rank, origin, and the value where it is small and distinguishes variants.

        Intermediate numbers of a shape computation differ from layer to layer and matter only in a slot that uses them.
        """
        if name in self._constants:
            return (self._rank(name), "constant", self._value(name, matters))
        if name in self._known:
            return (self._rank(name), "known", self._value(name, matters) if matters is _ValueMatters.ALWAYS else None)
        return (self._rank(name), "computed", None)

    def _value(self, name: str, matters: _ValueMatters) -> Hashable:
        if matters is _ValueMatters.NEVER:
            return None
        most = ZERO_POINTS if matters is _ValueMatters.WHETHER_ZERO else _SMALL
        array = self._known.get(name)
        if array is None:
            tensor = self._constants[name]
            if not isinstance(tensor, TensorProto) or prod(tensor.dims) > most:
                return None
            array = array_of(tensor, self._folder)
        if array.size > most:
            return None
        if matters is _ValueMatters.WHETHER_ZERO:
            return not array.any()
        integer = array.dtype.kind in "iub"
        # Integers (axes, indices, sizes) and scalars (exponents, bounds) count; small float weights and biases do not.
        return _exactly(array) if matters is _ValueMatters.ALWAYS or integer or array.size == 1 else None

    def _rank(self, name: str) -> Hashable:
        kind = self._types.get(name)
        if kind is None:
            return "unknown"
        if not kind.HasField("tensor_type"):
            return bytes(kind.SerializeToString(deterministic=True))
        tensor = kind.tensor_type
        return (tensor.elem_type, len(tensor.shape.dim) if tensor.HasField("shape") else None)


def _value_matters(node: onnx.NodeProto, slot: int) -> _ValueMatters:
    zero_points = ZERO_POINT_SLOTS.get((domain_of(node), node.op_type))
    if zero_points is not None:
        return _ValueMatters.WHETHER_ZERO if slot in zero_points else _ValueMatters.NEVER
    decisive = slot in SHAPE_SLOTS.get(node.op_type, ()) or slot in SEMANTIC_SLOTS.get(node.op_type, ())
    return _ValueMatters.ALWAYS if decisive else _ValueMatters.IF_INTEGER_OR_SCALAR


def _exactly(array: np.ndarray) -> Hashable:
    data = tuple(array.ravel().tolist()) if array.dtype.kind == "O" else array.tobytes()
    return (array.dtype.str, array.shape, data)


def _trimmed(names: Iterable[str]) -> list[str]:
    """The names without omitted ones at the end: `(x, "")` becomes `(x)`."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _attributes(node: onnx.NodeProto, outer: Callable[[str], str]) -> Hashable:
    if node.op_type == "ConstantOfShape" and not domain_of(node):  # what it fills with is a weight
        return tuple((it.name, it.t.data_type, bool(numpy_helper.to_array(it.t).any())) for it in node.attribute)
    return tuple(
        (attribute.name, _attribute(attribute, outer)) for attribute in sorted(node.attribute, key=lambda a: a.name)
    )


def _attribute(attribute: onnx.AttributeProto, outer: Callable[[str], str]) -> Hashable:
    if attribute.type == _AttributeType.GRAPH:
        return _structure(attribute.g, outer)
    if attribute.type == _AttributeType.GRAPHS:
        return tuple(_structure(graph, outer) for graph in attribute.graphs)
    if attribute.type == _AttributeType.TENSOR:
        return _tensor(attribute.t)
    bare = onnx.AttributeProto()
    bare.CopyFrom(attribute)
    bare.ClearField("doc_string")
    return bytes(bare.SerializeToString(deterministic=True))


def _tensor(tensor: TensorProto) -> Hashable:
    small = prod(tensor.dims) <= _SMALL and tensor.data_location != TensorProto.EXTERNAL
    return (tensor.data_type, tuple(tensor.dims), _exactly(numpy_helper.to_array(tensor)) if small else None)


def _structure(graph: onnx.GraphProto, outer: Callable[[str], str]) -> Hashable:
    """A subgraph with every name replaced by its tensor's origin, so that renaming does not change the key."""
    local: dict[str, str] = {"": ""}

    def rename(name: str) -> str:
        return local[name] if name in local else f"outer {outer(name)}"

    for number, value in enumerate(graph.input):
        local[value.name] = f"body input {number}"
    for number, tensor in enumerate(graph.initializer):
        local[tensor.name] = f"weight {number}"
    for number, sparse in enumerate(graph.sparse_initializer):
        local[sparse.values.name] = f"sparse weight {number}"
    for number, node in enumerate(graph.node):
        local.update({name: f"node {number} output {slot}" for slot, name in enumerate(node.output) if name})
    return (
        tuple(value.type.SerializeToString(deterministic=True) for value in graph.input),
        tuple(_tensor(tensor) for tensor in graph.initializer),
        tuple((tuple(sparse.dims), sparse.values.data_type) for sparse in graph.sparse_initializer),
        tuple(
            (
                domain_of(node),
                node.op_type,
                node.overload,
                tuple(rename(name) for name in node.input),
                len(node.output),
                _attributes(node, rename),
                len(bodies(node)),
            )
            for node in graph.node
        ),
        tuple(rename(value.name) for value in graph.output),
    )
