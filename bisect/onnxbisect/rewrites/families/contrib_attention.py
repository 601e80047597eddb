"""Attention and rotary embeddings of `com.microsoft`, written out without a cache of past keys and values."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound
from onnxbisect.rewrites.families.contrib import demand_unused
from onnxbisect.rewrites.forms import cast, concat, reshape, slice_axis, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import ORT_CONTRIB

_OF_SCORES = Bound(
    epsilons=8,
    of="the largest value's magnitude, times 1 + the magnitudes that make up the largest score, times their number",
)
#: What onnxruntime adds to the score of a masked key where the node does not say.
_MASKED = -10000.0


@pytorch("x * cos + rotate_half(x) * sin, exported without onnxruntime's optimiser")
@rule(
    "com.microsoft::RotaryEmbedding -> Reshape Transpose Add Gather Slice Mul Sub Concat",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the magnitudes of the two numbers that make a pair, together"),
    rank=27,
    source=ORT_CONTRIB,
)
def rotaryembedding_parts(at: Site) -> str:
    """Each pair of numbers turned by the angle of its position, which Gather looks up."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(not at.attribute("is_packed_batching", 0), "the batch is packed")
    at.demand(at.attribute("scale", 1.0) == 1, "the angles are scaled")
    shape, half = at.shape(0), at.shape(2)[-1]
    by_head = len(shape) == 4
    if by_head:
        batch, heads, steps, width = shape
        x = transpose(at, at.input(0), [0, 2, 1, 3])
    else:
        batch, steps, hidden = shape
        heads = at.attribute("num_heads", 0) or hidden // (2 * half)
        width = hidden // heads
        x = reshape(at, at.input(0), [batch, steps, heads, width])
    cosines, sines = (_of_positions(at, slot, batch, steps) for slot in (2, 3))
    turned = 2 * half
    interleaved = bool(at.attribute("interleaved", 0))
    if interleaved:
        first, second = (slice_axis(at, x, 3, start, turned, 2) for start in (0, 1))
    else:
        first, second = slice_axis(at, x, 3, 0, half), slice_axis(at, x, 3, half, turned)
    one = at.op("Sub", at.op("Mul", first, cosines), at.op("Mul", second, sines))
    other = at.op("Add", at.op("Mul", first, sines), at.op("Mul", second, cosines))
    if interleaved:
        pairs = [reshape(at, each, [batch, steps, heads, half, 1]) for each in (one, other)]
        parts = [reshape(at, concat(at, pairs, 4), [batch, steps, heads, turned])]
    else:
        parts = [one, other]
    if turned < width:
        parts.append(slice_axis(at, x, 3, turned, width))
    result = concat(at, parts, 3)
    return transpose(at, result, [0, 2, 1, 3]) if by_head else reshape(at, result, shape)


def _of_positions(at: Site, slot: int, batch: int, steps: int) -> str:
    """The rows of a table of cosines or sines for the positions, [batch or 1, steps, 1, half]."""
    positions, half = at.input(1), at.shape(2)[-1]
    if at.shape(1) == (1,):  # the position of the first step
        positions, batch = at.op("Add", positions, at.integers(range(steps))), 1
    return reshape(at, at.op("Gather", at.input(slot), positions, axis=0), [batch, steps, 1, half])


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    "com.microsoft::MultiHeadAttention -> Add Slice Reshape Transpose MatMul Mul Greater Cast Sub Softmax",
    Exactness.ROUNDING,
    _OF_SCORES,
    rank=27,
    source=ORT_CONTRIB,
)
def multiheadattention_parts(at: Site) -> tuple[str, ...]:
    """Softmax of the scaled products of queries and keys, times the values, for each head."""
    at.demand(at.has(1) and at.has(2), "queries, keys and values are packed into one tensor")
    for slot in (0, 1, 2, 3, 5):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
    at.demand(not any(at.has(slot) for slot in (6, 7, 8, 9)), "there is a cache of past keys and values")
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
    width = at.shape(0)[-1] // heads
    steps = at.shape(1)[-2]
    masks = [_padding(at, 4, steps)] if at.has(4) else []
    masks += [at.input(5)] if at.has(5) else []
    queries, keys, values = tensors
    result = _attention(at, queries, keys, values, masks, width, (at.shape(0)[1], steps))
    return reshape(at, transpose(at, result, [0, 2, 1, 3]), at.output_shape()), keys, values


@pytorch("an export that onnxruntime's optimiser did not change")
@rule(
    "com.microsoft::Attention -> MatMul Add Slice Reshape Transpose Mul Greater Cast Sub Softmax",
    Exactness.ROUNDING,
    _OF_SCORES,
    rank=27,
    source=ORT_CONTRIB,
)
def fusedattention_parts(at: Site) -> str:
    """Queries, keys and values by one MatMul; Softmax of their scaled products, times the values, for each head."""
    for slot in (0, 1, 2, 5):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)
    at.demand(not at.has(4) and not at.has(6), "there is a cache of past keys and values")
    at.demand(not at.attribute("do_rotary", 0), "it has a rotary embedding")
    demand_unused(at, 1)
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
    masks = [_padding(at, 3, steps)] if at.has(3) else []
    masks += [at.input(5)] if at.has(5) else []
    result = _attention(at, queries, keys, values, masks, sizes[0] // heads, (steps, steps))
    return reshape(at, transpose(at, result, [0, 2, 1, 3]), [batch, steps, sizes[2]])


def _by_head(at: Site, tensor: str, shape: Sequence[int], heads: int) -> str:
    """[batch, steps, hidden] as [batch, heads, steps, hidden of a head]."""
    at.demand(heads > 0 and shape[-1] % heads == 0, "the hidden size is not one of whole heads")
    return transpose(at, reshape(at, tensor, [*shape[:-1], heads, shape[-1] // heads]), [0, 2, 1, 3])


def _padding(at: Site, slot: int, keys: int) -> str:
    """What a mask adds to the scores, [batch, 1, 1, keys]: one of 0 and 1 for each key, or of the keys that count."""
    dims, mask = at.shape(slot), at.input(slot)
    dtype = at.value_dtype(slot)
    if len(dims) == 1:
        at.demand(dims[0] == at.shape(0)[0], "the mask has several numbers for each row")
        kept = at.op("Greater", reshape(at, mask, [dims[0], 1]), at.constant(np.arange(keys, dtype=dtype)[None]))
    else:
        at.demand(len(dims) == 2 and dims[1] == keys, "the mask is not one of 0 and 1 for each key")
        kept = at.op("Greater", mask, at.constant(np.zeros((), dtype)))
    hidden = at.op("Sub", _float(at, 1), cast(at, kept, TensorProto.FLOAT))
    lowered = at.op("Mul", hidden, _float(at, at.attribute("mask_filter_value", _MASKED)))
    return reshape(at, lowered, [dims[0], 1, 1, keys])


def _float(at: Site, value: float) -> str:
    return at.constant(np.array(value, np.float32))


def _attention(
    at: Site, queries: str, keys: str, values: str, masks: Sequence[str], width: int, steps: tuple[int, int]
) -> str:
    """Attention of [batch, heads, steps, width]; `steps` are those of queries and keys."""
    factor = at.attribute("scale", 0.0) or 1 / sqrt(width)
    scores = at.op("MatMul", queries, transpose(at, keys, [0, 1, 3, 2]))
    scores = at.op("Mul", scores, _float(at, factor))
    for mask in masks:
        scores = at.op("Add", scores, mask)
    if at.attribute("unidirectional", 0):
        later = np.triu(np.ones(steps, np.bool_), k=1)
        lowest = np.finfo(np.float32).min
        scores = at.op("Add", scores, at.constant(np.where(later, lowest, np.float32(0))[None, None]))
    return at.op("MatMul", at.op("Softmax", scores, axis=3), values)
