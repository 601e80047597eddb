"""Checks of value types: element types that NPUs lack or narrow, values that are not tensors, dimensions and ranks."""

from collections.abc import Callable, Iterator
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxbisect.language import count, english, shortened
from onnxbisect.model.external import is_external
from onnxbisect.model.shapeops import SHAPE_SLOTS
from onnxbisect.preflight.subject import CheckResult, InspectedModel, unique

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)
#: Most elements of an integer constant that is read; larger ones are indices or vocabularies, not worth the cost.
_MOST_ELEMENTS = 1 << 20
_QUANTIZED = frozenset(
    {
        "QLinearConv",
        "QLinearMatMul",
        "MatMulInteger",
        "ConvInteger",
        "DynamicQuantizeLinear",
        "QuantizeLinear",
        "DequantizeLinear",
    }
)
#: Ops whose number of results depends on the input values.
_COUNTING = ("NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit")
# fmt: off
_ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "And", "Clip", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "HardSigmoid",
        "HardSwish", "LeakyRelu", "Less", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow",
        "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Cos", "Softplus", "Sqrt", "Sub", "Tanh", "Where",
        "Xor",
    }
)
# fmt: on
_MOST_DIMS = 5
_MOST_SIZE = 65535
#: Bytes from which an activation that is reduced as a whole is reported.
_LARGE = 4 << 20
_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}


def int64_tensors(subject: InspectedModel) -> CheckResult | None:
    """Activations of int64, without constants that only hold shapes."""
    return _tensors(subject.of_dtype(TensorProto.INT64), "int64")


def bool_tensors(subject: InspectedModel) -> CheckResult | None:
    """Activations of bool."""
    return _tensors(subject.of_dtype(TensorProto.BOOL), "bool")


def double_tensors(subject: InspectedModel) -> CheckResult | None:
    """Activations and weights of float64."""
    weights = tuple(t.name for t in subject.graph.initializer if t.data_type == TensorProto.DOUBLE)
    return _tensors((*subject.of_dtype(TensorProto.DOUBLE), *weights), "float64")


def bfloat16_tensors(subject: InspectedModel) -> CheckResult | None:
    """Activations and weights of bfloat16."""
    weights = tuple(t.name for t in subject.graph.initializer if t.data_type == TensorProto.BFLOAT16)
    return _tensors((*subject.of_dtype(TensorProto.BFLOAT16), *weights), "bfloat16")


def unsigned_tensors(subject: InspectedModel) -> CheckResult | None:
    """Unsigned integers in a model that is not quantised."""
    if quantized_ops(subject) is not None:
        return None
    unsigned = (TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32)
    return _tensors(tuple(name for dtype in unsigned for name in subject.of_dtype(dtype)), "unsigned")


def half_bfloat_weights(subject: InspectedModel) -> CheckResult | None:
    """Weights of float16 or bfloat16, and casts from bfloat16."""
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    names = tuple(t.name for t in subject.graph.initializer if t.data_type in halves)
    casts = tuple(
        node.name
        for node in subject.nodes
        if node.op_type == "Cast" and subject.dtype(node.input[0]) == TensorProto.BFLOAT16
    )
    if not names and not casts:
        return None
    parts = [count(len(names), "weight")] if names else []
    parts += [english("{casts} from bfloat16", casts=count(len(casts), "Cast"))] if casts else []
    return CheckResult(nodes=casts, tensors=names, detail=", ".join(parts))


def int64_out_of_int32(subject: InspectedModel) -> CheckResult | None:
    """Integer constants that exceed int32, except for the "to the end" value of Slice, which every tool knows."""
    names = []
    for name, values in _integers(subject):
        beyond = values[(values < _INT32.min) | (values > _INT32.max)]
        readers = subject.consumers.get(name, [])
        if readers and all(node.op_type == "Slice" and name in node.input[1:3] for node in readers):
            # INT64_MAX, and what exporters write for it and for "from the start"
            beyond = beyond[(beyond > _INT64.min + 1) & (beyond < _INT64.max - 1)]
        if beyond.size:
            names.append(name)
    return _tensors(tuple(names), "int64 with values beyond int32") if names else None


def quantized_ops(subject: InspectedModel) -> CheckResult | None:
    """Ops of a model that was quantised before export."""
    sites = subject.sites_of(*_QUANTIZED)
    ops = unique(s.node.op_type for s in sites)
    return CheckResult(nodes=subject.holders(sites), detail=shortened(ops)) if sites else None


def sequence_type(subject: InspectedModel) -> CheckResult | None:
    """Sequences and maps, and the ops that make them."""
    prefixes = ("Sequence", "SplitToSequence", "ConcatFromSequence", "ZipMap")
    return _kind(subject, lambda t: t.HasField("sequence_type") or t.HasField("map_type"), prefixes)


def optional_type(subject: InspectedModel) -> CheckResult | None:
    """Optional values, and the ops on them."""
    return _kind(subject, lambda t: t.HasField("optional_type"), ("Optional",))


def string_type(subject: InspectedModel) -> CheckResult | None:
    """String tensors, and the ops on them."""
    prefixes = ("String", "RegexFullMatch", "TfIdfVectorizer", "LabelEncoder")
    return _kind(subject, lambda t: t.tensor_type.elem_type == TensorProto.STRING, prefixes)


def _kind(
    subject: InspectedModel, holds: Callable[[onnx.TypeProto], bool], prefixes: tuple[str, ...]
) -> CheckResult | None:
    declared = {value.name: value.type for value in (*subject.graph.input, *subject.graph.output)}
    types = {**declared, **subject.model.types}
    names = tuple(n for n in subject.activations if n in types and holds(types[n]))
    nodes = subject.holders(s for s in subject.sites if s.node.op_type.startswith(prefixes))
    if not names and not nodes:
        return None
    ops = unique(s.node.op_type for s in subject.sites if s.node.op_type.startswith(prefixes))
    return CheckResult(nodes=nodes, tensors=names, detail=shortened(ops) or shortened(names))


def _tensors(names: tuple[str, ...], what: str) -> CheckResult | None:
    return CheckResult(tensors=names, detail=f"{count(len(names), 'tensor')} of {what}") if names else None


def _integers(subject: InspectedModel) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in subject.stored_tensors.items():
        small = np.prod(tensor.dims, dtype=np.int64) <= _MOST_ELEMENTS
        if tensor.data_type == TensorProto.INT64 and small and not is_external(tensor):
            yield name, numpy_helper.to_array(tensor)
    for name, array in subject.model.known.items():
        if array.dtype == np.int64 and array.size <= _MOST_ELEMENTS:
            yield name, array


def dynamic_input_dim(subject: InspectedModel) -> CheckResult | None:
    """Graph inputs that still have a dimension without a number."""
    names = subject.model.unbound
    texts = tuple(f"{name}: {subject.type_text(name)}" for name in names)
    return CheckResult(tensors=names, detail=shortened(texts)) if names else None


def dynamic_internal_dim(subject: InspectedModel) -> CheckResult | None:
    """Tensors with a dimension without a number although every input is bound, and no op is named for it."""
    if subject.model.unbound:
        return None
    explained = set() if data_dependent_shape_op(subject) is None else set(subject.model.data_dependent)
    names = tuple(n for n in subject.activations if n not in explained and None in (subject.dims(n) or ()))
    return (
        CheckResult(
            tensors=names,
            detail=english("{tensors} with an unknown size", tensors=count(len(names), "tensor")),
            remediable=False,
        )
        if names
        else None
    )


def unknown_rank(subject: InspectedModel) -> CheckResult | None:
    """Tensors of which not even the number of dimensions is known."""
    types = subject.model.types
    unknown = (name for name in subject.activations if subject.dims(name) is None)
    names = tuple(name for name in unknown if name not in types or types[name].HasField("tensor_type"))
    return (
        CheckResult(tensors=names, detail=english("{tensors} of unknown rank", tensors=count(len(names), "tensor")))
        if names
        else None
    )


def data_dependent_shape_op(subject: InspectedModel) -> CheckResult | None:
    """Ops whose output size depends on values, and ops whose shape operand is computed from the model's inputs."""
    counting = set(subject.holders(subject.sites_of(*_COUNTING)))
    slots = {
        node.name: node.op_type
        for node in subject.nodes
        if not node.domain
        and any(
            node.input[slot] and node.input[slot] not in subject.constants
            for slot in SHAPE_SLOTS.get(node.op_type, ())
            if slot < len(node.input)
        )
    }
    nodes = tuple(node.name for node in subject.nodes if node.name in counting or node.name in slots)
    ops = unique(node.op_type for node in subject.nodes if node.name in counting or node.name in slots)
    if not nodes:
        return None
    return CheckResult(
        nodes=nodes, tensors=subject.model.data_dependent, detail=shortened(ops), remediable=subject.foldable
    )


def zero_size_dim(subject: InspectedModel) -> CheckResult | None:
    """Activations with a dimension of 0."""
    names = tuple(n for n in subject.activations if 0 in (subject.dims(n) or ()))
    texts = tuple(f"{name}: {subject.type_text(name)}" for name in names)
    return CheckResult(tensors=names, detail=shortened(texts)) if names else None


def rank_too_high(subject: InspectedModel) -> CheckResult | None:
    """Activations of more than 5 dimensions."""
    names = tuple(n for n in subject.activations if len(subject.dims(n) or ()) > _MOST_DIMS)
    highest = max((len(subject.dims(n) or ()) for n in names), default=0)
    return (
        CheckResult(
            tensors=names,
            detail=english(
                "{tensors} of up to {highest} dimensions", tensors=count(len(names), "tensor"), highest=highest
            ),
        )
        if names
        else None
    )


def rank_too_low(subject: InspectedModel) -> CheckResult | None:
    """Element-wise ops on activations of 0 or 1 dimensions."""
    nodes = tuple(
        node.name
        for node in subject.nodes
        if node.op_type in _ELEMENTWISE
        and node.output[0] not in subject.constants
        and (dims := subject.dims(node.output[0])) is not None
        and len(dims) < 2
    )
    return (
        CheckResult(nodes=nodes, detail=english("{nodes} of rank 0 or 1", nodes=count(len(nodes), "element-wise node")))
        if nodes
        else None
    )


def batch_not_one(subject: InspectedModel) -> CheckResult | None:
    """Image-like inputs (4 dimensions) whose first dimension is not 1."""
    names = tuple(
        n for n in subject.inputs if (d := subject.dims(n)) and len(d) == 4 and d[0] is not None and d[0] != 1
    )
    texts = tuple(f"{name}: {subject.type_text(name)}" for name in names)
    return CheckResult(tensors=names, detail=shortened(texts)) if names else None


def dim_too_large(subject: InspectedModel) -> CheckResult | None:
    """Activations with a dimension above 65535."""
    names = tuple(
        n for n in subject.activations if max((d or 0 for d in subject.dims(n) or ()), default=0) > _MOST_SIZE
    )
    texts = tuple(f"{name}: {subject.type_text(name)}" for name in names)
    return CheckResult(tensors=names, detail=shortened(texts)) if names else None


def large_intermediate(subject: InspectedModel) -> CheckResult | None:
    """Activations above 4 MB that a Softmax or a reduction reads as a whole."""
    found = {
        node.name: node.input[0]
        for node in subject.nodes
        if (node.op_type.startswith("Reduce") or node.op_type in ("Softmax", "LogSoftmax", "Hardmax"))
        and node.input
        and node.input[0] not in subject.constants
        and _bytes(subject, node.input[0]) > _LARGE
    }
    if not found:
        return None
    largest = max(found.values(), key=lambda name: _bytes(subject, name))
    return CheckResult(
        nodes=tuple(found),
        tensors=unique(iter(found.values())),
        detail=english(
            "up to {total} MB: {largest}: {type_text}",
            total=f"{_bytes(subject, largest) / (1 << 20):.0f}",
            largest=largest,
            type_text=subject.type_text(largest),
        ),
    )


def _bytes(subject: InspectedModel, name: str) -> int:
    dims = subject.dims(name)
    if dims is None or None in dims:
        return 0
    return prod(d or 0 for d in dims) * _BYTES.get(subject.dtype(name), 4)


CHECKS = {
    "int64-tensors": int64_tensors,
    "int64-out-of-int32": int64_out_of_int32,
    "double-tensors": double_tensors,
    "bfloat16-tensors": bfloat16_tensors,
    "bool-tensors": bool_tensors,
    "unsigned-tensors": unsigned_tensors,
    "half-bfloat-weights": half_bfloat_weights,
    "quantized-ops": quantized_ops,
    "sequence-type": sequence_type,
    "optional-type": optional_type,
    "string-type": string_type,
    "dynamic-input-dim": dynamic_input_dim,
    "dynamic-internal-dim": dynamic_internal_dim,
    "unknown-rank": unknown_rank,
    "data-dependent-shape-op": data_dependent_shape_op,
    "zero-size-dim": zero_size_dim,
    "rank-too-high": rank_too_high,
    "rank-too-low": rank_too_low,
    "batch-not-one": batch_not_one,
    "dim-too-large": dim_too_large,
    "large-intermediate": large_intermediate,
}
