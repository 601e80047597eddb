"""Checks of value types: element types that NPUs lack or narrow, and values that are not tensors."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxbisect.language import count, english, shortened
from onnxbisect.model.external import is_external
from onnxbisect.model.scopes import is_constant
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
    parts = [count(len(names), "weight")] * bool(names) + [
        english("{casts} from bfloat16", casts=count(len(casts), "Cast"))
    ] * bool(casts)
    return CheckResult(nodes=casts, tensors=names, detail=", ".join(parts))


def int64_out_of_int32(subject: InspectedModel) -> CheckResult | None:
    """Integer constants that exceed int32, except for the "to the end" value of Slice, which every tool knows."""
    names = tuple(name for name, values in _integers(subject) if _overflows(values, _is_slice_bound(subject, name)))
    return _tensors(names, "int64 with values beyond int32") if names else None


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
    stored = [(t.name, t) for t in subject.graph.initializer]
    stored += [
        (node.output[0], a.t)
        for node in subject.graph.node
        if is_constant(node)
        for a in node.attribute
        if a.name == "value"
    ]
    for name, tensor in stored:
        small = np.prod(tensor.dims, dtype=np.int64) <= _MOST_ELEMENTS
        if tensor.data_type == TensorProto.INT64 and small and not is_external(tensor):
            yield name, numpy_helper.to_array(tensor)
    for name, array in subject.model.known.items():
        if array.dtype == np.int64 and array.size <= _MOST_ELEMENTS:
            yield name, array


def _is_slice_bound(subject: InspectedModel, name: str) -> bool:
    readers = subject.consumers.get(name, [])
    return bool(readers) and all(n.op_type == "Slice" and name in n.input[1:3] for n in readers)


def _overflows(values: np.ndarray, is_bound: bool) -> bool:
    beyond = values[(values < _INT32.min) | (values > _INT32.max)]
    if is_bound:
        # INT64_MAX, and what exporters write for it and for "from the start"
        beyond = beyond[(beyond > _INT64.min + 1) & (beyond < _INT64.max - 1)]
    return beyond.size > 0


CHECKS = {
    "int64-tensors": int64_tensors,
    "int64-out-of-int32": int64_out_of_int32,
    "double-tensors": double_tensors,
    "bool-tensors": bool_tensors,
    "half-bfloat-weights": half_bfloat_weights,
    "quantized-ops": quantized_ops,
    "sequence-type": sequence_type,
    "optional-type": optional_type,
    "string-type": string_type,
}
