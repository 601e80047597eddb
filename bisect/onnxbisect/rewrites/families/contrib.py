"""Ops of `com.microsoft` that onnxruntime's optimiser and exporters of language models fuse, as ops of ONNX.

Their definitions are those of onnxruntime's ContribOperators.md; onnxruntime itself is the reference of the tests.
The attention of language models, whose cache may have room for more, is in `language`.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.families.activations import erf_form, tanh_form
from onnxbisect.rewrites.families.normalisation import OF_ROW, scaled, standardised
from onnxbisect.rewrites.rule import OF_PRODUCTS, ORT_CONTRIB, Bound, pytorch, rule
from onnxbisect.rewrites.site import Site, cast, clip, concat, demand_float32, reduce, reshape, slice_axis, transpose

OF_SCORES = Bound(
    epsilons=8,
    of="the largest value's magnitude, times 1 plus the magnitudes that make up the largest score, times their number",
)
#: What onnxruntime adds to the score of a masked key where the node does not say.
_MASKED = -10000.0


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    "com.microsoft::MultiHeadAttention -> Add Slice Reshape Transpose Concat MatMul Mul Greater Cast Sub Softmax",
    Exactness.ROUNDING,
    OF_SCORES,
    rank=27,
    source=ORT_CONTRIB,
)
def multiheadattention_parts(at: Site) -> tuple[str, ...]:
    """Softmax of the scaled products of queries and keys, times the values, for each head, behind a cache."""
    at.demand(at.has(1) and at.has(2), "queries, keys and values are packed into one tensor")
    for slot in (0, 1, 2, 3, 5, 6, 7):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
    at.demand(not at.has(8) and not at.has(9), "the cache has a length of its own, or beams")
    demand_unused(at, 3)
    heads, start, tensors = at.attribute("num_heads", 0), 0, []
    at.demand(len(at.shape(0)) == 3, "queries are not [batch, steps, hidden]")
    for slot in range(3):
        shape, tensor = at.shape(slot), at.input(slot)
        if len(shape) == 4:
            at.demand(not at.has(3), "keys that are split by head have a bias")
            tensors.append(tensor)
            continue
        if at.has(3):
            tensor = at.op("Add", tensor, slice_axis(at, at.input(3), 0, start, start + shape[-1]))
            start += shape[-1]
        tensors.append(_by_head(at, tensor, shape, heads))
    width, (queries, keys, values) = at.shape(0)[-1] // heads, tensors
    sizes = _Steps(queries=at.shape(0)[1], keys=at.shape(1)[-2], past=at.shape(6)[2] if at.has(6) else 0)
    if at.has(6) and at.has(7):
        at.demand(len(at.shape(1)) == 3, "keys that are split by head have a cache")
        keys, values = (concat(at, [at.input(slot), new], 2) for slot, new in ((6, keys), (7, values)))
    result = _attention(at, queries, keys, values, width, sizes, padding=4)
    return reshape(at, transpose(at, result, [0, 2, 1, 3]), at.output_shape()), keys, values


class _Steps(NamedTuple):
    """How many queries and new keys there are, and keys in the cache before them."""

    queries: int
    keys: int
    past: int


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    "com.microsoft::Attention -> MatMul Add Slice Reshape Transpose Mul Greater Cast Sub Softmax Concat",
    Exactness.ROUNDING,
    OF_SCORES,
    rank=27,
    source=ORT_CONTRIB,
)
def fusedattention_parts(at: Site) -> tuple[str, ...]:
    """Queries, keys and values by one MatMul; Softmax of their scaled products, times the values, behind a cache."""
    for slot in (0, 1, 2, 4, 5):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
    at.demand(not at.has(6), "the cache has a length of its own")
    at.demand(not at.attribute("do_rotary", 0), "it has a rotary embedding")
    batch, steps, _ = at.shape(0)
    heads, total = at.attribute("num_heads", 0), at.shape(1)[1]
    sizes = list(at.attribute("qkv_hidden_sizes", [total // 3] * 3))
    projected = at.op("MatMul", at.input(0), at.input(1))
    projected = at.op("Add", projected, at.input(2)) if at.has(2) else projected
    ends = np.cumsum([0, *sizes]).tolist()
    queries, keys, values = (
        _by_head(at, slice_axis(at, projected, 2, start, end), (batch, steps, end - start), heads)
        for start, end in pairwise(ends)
    )
    past = 0
    if at.has(4):
        cache = at.shape(4)
        past = cache[3]
        held = [reshape(at, slice_axis(at, at.input(4), 0, half, half + 1), cache[1:]) for half in (0, 1)]
        keys, values = (concat(at, list(pair), 2) for pair in zip(held, (keys, values), strict=True))
    kept = ""
    if any(at.node.output[1:2]):
        at.demand(sizes[1] == sizes[2], "keys and values are of different widths")
        dims = [1, batch, heads, past + steps, sizes[1] // heads]
        kept = concat(at, [reshape(at, each, dims) for each in (keys, values)], 0)
    counts = _Steps(queries=steps, keys=steps, past=past)
    result = _attention(at, queries, keys, values, sizes[0] // heads, counts, padding=3)
    return reshape(at, transpose(at, result, [0, 2, 1, 3]), [batch, steps, sizes[2]]), kept


def _by_head(at: Site, tensor: str, shape: Sequence[int], heads: int) -> str:
    """[batch, steps, hidden] as [batch, heads, steps, hidden of a head]."""
    at.demand(heads > 0 and shape[-1] % heads == 0, "the hidden size is not one of whole heads")
    return transpose(at, reshape(at, tensor, [*shape[:-1], heads, shape[-1] // heads]), [0, 2, 1, 3])


def float32(at: Site, value: float) -> str:
    """Add a float32 constant of rank 0, whatever the node's inputs are; returns its name."""
    return at.constant(np.array(value, np.float32))


def _attention(at: Site, queries: str, keys: str, values: str, width: int, steps: _Steps, *, padding: int) -> str:
    """Attention of [batch, heads, steps, width]; `padding` is the slot of the mask, behind which others are added."""
    factor = at.attribute("scale", 0.0) or 1 / sqrt(width)
    scores = at.op("MatMul", queries, transpose(at, keys, [0, 1, 3, 2]))
    scores = at.op("Mul", scores, float32(at, factor))
    if at.has(padding):
        # What a mask adds to the scores, for each row and key and mostly all heads and queries.
        dims, mask, columns = at.shape(padding), at.input(padding), steps.past + steps.keys
        dtype = at.value_dtype(padding)
        if len(dims) == 1:
            at.demand(dims[0] == at.shape(0)[0], "the mask has several numbers for each row")
            kept = at.op("Greater", reshape(at, mask, [dims[0], 1]), at.constant(np.arange(columns, dtype=dtype)[None]))
        else:
            each = dims == (dims[0], steps.queries, columns)
            at.demand(each or dims == (dims[0], columns), "the mask is not one of 0 and 1 for each key")
            kept = at.op("Greater", mask, at.constant(np.zeros((), dtype)))
        hidden = at.op("Sub", float32(at, 1), cast(at, kept, TensorProto.FLOAT))
        lowered = at.op("Mul", hidden, float32(at, at.attribute("mask_filter_value", _MASKED)))
        scores = at.op("Add", scores, reshape(at, lowered, [dims[0], 1, dims[1] if len(dims) == 3 else 1, columns]))
    if at.has(5):
        scores = at.op("Add", scores, at.input(5))
    if at.attribute("unidirectional", 0):
        at.demand(steps.queries >= steps.keys, "the last query sees keys that come after it")
        later = np.triu(np.ones((steps.queries, steps.past + steps.keys), np.bool_), k=1 + steps.past)
        lowest = np.finfo(np.float32).min
        scores = at.op("Add", scores, at.constant(np.where(later, lowest, np.float32(0))[None, None]))
    return at.op("MatMul", at.op("Softmax", scores, axis=3), values)


#: onnxruntime's default where the node gives no epsilon.
_EPSILON = 1e-12


def demand_unused(at: Site, *slots: int) -> None:
    """Raise NotApplicable if one of these outputs is in use."""
    for slot in slots:
        at.demand(not any(at.node.output[slot : slot + 1]), f"output {slot} is in use")


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    "com.microsoft::SkipLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization "
    "-> Add ReduceMean Sub Mul Sqrt Div",
    Exactness.ROUNDING,
    OF_ROW,
    rank=27,
    source=ORT_CONTRIB,
)
def skipnorm_parts(at: Site) -> tuple[str, ...]:
    """The inputs and the bias added up, then the normalisation in parts; the sum is the fourth output."""
    demand_float32(at)
    demand_unused(at, 1, 2)
    rank, epsilon = at.rank(0), at.attribute("epsilon", _EPSILON)
    total = at.op("Add", at.input(0), at.input(1))
    if at.node.op_type == "SkipSimplifiedLayerNormalization":
        total = at.op("Add", total, at.input(3)) if at.has(3) else total
        return at.op("Mul", scaled(at, total, [rank - 1], epsilon), at.input(2)), "", "", total
    total = at.op("Add", total, at.input(4)) if at.has(4) else total
    result = at.op("Mul", standardised(at, total, [rank - 1], epsilon), at.input(2))
    return at.op("Add", result, at.input(3)) if at.has(3) else result, "", "", total


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    "com.microsoft::EmbedLayerNormalization -> Gather Add ReduceMean Sub Mul Sqrt Div ReduceSum",
    Exactness.ROUNDING,
    OF_ROW,
    rank=27,
    source=ORT_CONTRIB,
)
def embednorm_parts(at: Site) -> tuple[str, ...]:
    """The embeddings of words, positions and segments looked up and added, then LayerNormalization in parts."""
    for slot in (2, 3, 4, 5, 6):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
    words = at.op("Gather", at.input(2), at.input(0), axis=0)
    if at.has(8):
        positions = at.op("Gather", at.input(3), at.input(8), axis=0)
    else:
        positions = at.op("Gather", at.input(3), at.integers(range(at.shape(0)[-1])), axis=0)
    total = at.op("Add", words, positions)
    if at.has(1) and at.has(4):
        total = at.op("Add", total, at.op("Gather", at.input(4), at.input(1), axis=0))
    epsilon = at.attribute("epsilon", _EPSILON)
    result = at.op("Mul", standardised(at, total, [2], epsilon, slot=2), at.input(5))
    result = at.op("Add", result, at.input(6))
    # the second output: how many words of each row the mask keeps, 0 without a mask
    if at.has(7):
        return result, reduce(at, "ReduceSum", at.input(7), [1], keepdims=False), total
    return result, at.constant(np.zeros(at.shape(0)[0], np.int32)), total


@pytorch("F.gelu(x + bias), exported without onnxruntime's optimiser")
@rule(
    "com.microsoft::BiasGelu -> Add Mul Erf",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the input with its bias"),
    rank=6,
    source=ORT_CONTRIB,
)
def biasgelu_erf(at: Site) -> str:
    """The bias added, then x/2 times 1 + Erf(x/sqrt 2)."""
    demand_float32(at)
    return erf_form(at, at.op("Add", at.input(0), at.input(1)))


@pytorch('F.gelu(x + bias, approximate="tanh"), exported without onnxruntime\'s optimiser')
@rule(
    "com.microsoft::FastGelu -> Add Mul Tanh",
    Exactness.ROUNDING,
    Bound(epsilons=6, of="the input with its bias"),
    rank=6,
    source=ORT_CONTRIB,
)
def fastgelu_tanh(at: Site) -> str:
    """The bias added, then the tanh form of Gelu."""
    demand_float32(at)
    return tanh_form(at, at.op("Add", at.input(0), at.input(1)) if at.has(1) else at.input(0))


@pytorch("x * torch.sigmoid(1.702 * x), exported without onnxruntime's optimiser")
@rule(
    "com.microsoft::QuickGelu -> Mul Sigmoid",
    Exactness.ROUNDING,
    Bound(epsilons=6, of="the input"),
    rank=6,
    source=ORT_CONTRIB,
)
def quickgelu_sigmoid(at: Site) -> str:
    """x times the sigmoid of alpha x."""
    x, alpha = at.float32(), at.attribute("alpha", 1.702)
    return at.op("Mul", x, at.op("Sigmoid", x if alpha == 1 else at.op("Mul", x, at.scalar(alpha))))


@pytorch("a @ b.transpose(-1, -2) * alpha, exported without onnxruntime's optimiser")
@rule(
    "com.microsoft::FusedMatMul com.microsoft::TransposeMatMul -> Transpose MatMul Mul",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=24,
    source=ORT_CONTRIB,
)
def fusedmatmul_matmul(at: Site) -> str:
    """Transposes, the product, and alpha."""
    demand_float32(at)
    operands = [_turned(at, slot, side) for slot, side in enumerate("AB")]
    product, alpha = at.op("MatMul", *operands), at.attribute("alpha", 1.0)
    return product if alpha == 1 else at.op("Mul", product, at.scalar(alpha))


def _turned(at: Site, slot: int, side: str) -> str:
    """An operand of FusedMatMul with its axes as MatMul takes them."""
    rank = at.rank(slot)
    order = list(range(rank))
    if at.attribute(f"transBatch{side}", 0):
        # the matrix is the first axis and the last one, the batch is between them
        at.demand(rank > 2, "an operand has no batch axes")
        order = [*order[1:-1], order[0], order[-1]]
    if at.attribute(f"trans{side}", 0) and rank > 1:
        order[-2:] = order[:-3:-1]
    return transpose(at, at.input(slot), order)


_ACTIVATIONS = "Relu Tanh Sigmoid LeakyRelu Clip HardSigmoid"


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    f"com.microsoft::FusedConv -> Conv Add {_ACTIVATIONS}", Exactness.ROUNDING, OF_PRODUCTS, rank=13, source=ORT_CONTRIB
)
def fusedconv_conv(at: Site) -> str:
    """Conv, the tensor that is added, and the activation."""
    demand_float32(at)
    own = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes: dict[str, Any] = {name: at.attribute(name, None) for name in own if at.has_attribute(name)}
    (result,) = at.ops("Conv", [at.input(slot) for slot in range(3) if at.has(slot)], 1, **attributes)
    if at.has(3):
        result = at.op("Add", result, at.input(3))
    none: list[float] = []
    return _activated(at, result, at.attribute("activation_params", none))


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(f"com.microsoft::FusedGemm -> Gemm {_ACTIVATIONS}", Exactness.ROUNDING, OF_PRODUCTS, rank=13, source=ORT_CONTRIB)
def fusedgemm_gemm(at: Site) -> str:
    """Gemm, then the activation."""
    demand_float32(at)
    own: dict[str, Any] = {
        name: at.attribute(name, None) for name in ("alpha", "beta", "transA", "transB") if at.has_attribute(name)
    }
    result = at.op("Gemm", *at.node.input, **own)
    given = [
        at.attribute(f"activation_{name}", 0.0) for name in ("alpha", "beta") if at.has_attribute(f"activation_{name}")
    ]
    return _activated(at, result, given)


def _activated(at: Site, result: str, parameters: Sequence[float]) -> str:
    """The activation that a fused node names, with its parameters."""
    kind = at.attribute("activation", "")
    at.demand(kind in _ACTIVATIONS.split(), f"the activation {kind!r} is not known")
    if kind == "Clip":
        return clip(at, result, *parameters)
    names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"]}.get(kind, [])
    given: dict[str, Any] = dict(zip(names, parameters, strict=False))
    return at.ops(kind, [result], 1, **given)[0]
