"""Checks of dimensions and ranks."""

from math import prod

from onnxbisect.language import count, english, shortened
from onnxbisect.model.shapeops import SHAPE_SLOTS
from onnxbisect.preflight.subject import CheckResult, InspectedModel, unique

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


def dynamic_input_dim(subject: InspectedModel) -> CheckResult | None:
    """Graph inputs that still have a dimension without a number."""
    names = subject.model.unbound
    texts = tuple(f"{name}: {subject.type_text(name)}" for name in names)
    return CheckResult(tensors=names, detail=shortened(texts)) if names else None


def dynamic_internal_dim(subject: InspectedModel) -> CheckResult | None:
    """Tensors with a dimension without a number although every input is bound."""
    if subject.model.unbound:
        return None
    names = tuple(n for n in subject.activations if None in (subject.dims(n) or ()))
    return (
        CheckResult(
            tensors=names, detail=english("{tensors} with an unknown size", tensors=count(len(names), "tensor"))
        )
        if names
        else None
    )


def unknown_rank(subject: InspectedModel) -> CheckResult | None:
    """Tensors of which not even the number of dimensions is known."""
    names = tuple(n for n in subject.activations if subject.dims(n) is None and _may_be_tensor(subject, n))
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
    return CheckResult(nodes=nodes, tensors=subject.model.data_dependent, detail=shortened(ops)) if nodes else None


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


def _may_be_tensor(subject: InspectedModel, name: str) -> bool:
    known = subject.model.types.get(name)
    return known is None or known.HasField("tensor_type")


CHECKS = {
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
