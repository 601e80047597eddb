"""Attention with a cache and rotary embeddings, which exporters of language models write as ops of `com.microsoft`.

Keys and values of earlier steps are joined with the new ones. Where a row of the batch has fewer of them than the cache
has room for, their number is an input, and the places follow from it.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.families.contrib import OF_SCORES, demand_unused, float32
from onnxbisect.rewrites.rule import ORT_CONTRIB, Bound, Domain, Values, pytorch, rule
from onnxbisect.rewrites.site import Site, cast, concat, reshape, slice_axis, transpose


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
    mixed = bool(at.attribute("interleaved", 0))
    result = _rotated(at, x, (batch, steps, heads, width), cosines, sines, half=half, interleaved=mixed)
    return transpose(at, result, [0, 2, 1, 3]) if by_head else reshape(at, result, shape)


def _rotated(
    at: Site, x: str, dims: tuple[int, int, int, int], cosines: str, sines: str, *, half: int, interleaved: bool
) -> str:
    """The pairs of numbers in [batch, steps, heads, width] turned; what is behind them stays."""
    *outer, width = dims
    turned = 2 * half
    if interleaved:
        first, second = (slice_axis(at, x, 3, start, turned, 2) for start in (0, 1))
    else:
        first, second = slice_axis(at, x, 3, 0, half), slice_axis(at, x, 3, half, turned)
    one = at.op("Sub", at.op("Mul", first, cosines), at.op("Mul", second, sines))
    other = at.op("Add", at.op("Mul", first, sines), at.op("Mul", second, cosines))
    if interleaved:
        pairs = [reshape(at, each, [*outer, half, 1]) for each in (one, other)]
        parts = [reshape(at, concat(at, pairs, 4), [*outer, turned])]
    else:
        parts = [one, other]
    if turned < width:
        parts.append(slice_axis(at, x, 3, turned, width))
    return concat(at, parts, 3)


def _of_positions(at: Site, slot: int, batch: int, steps: int) -> str:
    """The rows of a table of cosines or sines for the positions, [batch or 1, steps, 1, half]."""
    positions, half = at.input(1), at.shape(2)[-1]
    if at.shape(1) == (1,):  # the position of the first step
        positions, batch = at.op("Add", positions, at.integers(range(steps))), 1
    return reshape(at, at.op("Gather", at.input(slot), positions, axis=0), [batch, steps, 1, half])


#: Masked scores are lowered by this.
_LOWEST = float(np.finfo(np.float32).min)


def _is_full(values: Values) -> bool:
    """Whether each row of GroupQueryAttention has as many keys as the longest one."""
    lengths, total = (*values, *[None] * 7)[5:7]
    return lengths is not None and total is not None and bool((lengths == total.reshape(-1)[0] - 1).all())


_GROUPED = "Reshape Transpose MatMul Mul Add Softmax Concat Slice Sub Gather"


@pytorch("F.scaled_dot_product_attention(q, k, v, enable_gqa=True), exported without onnxruntime's fused op")
@rule(
    f"com.microsoft::GroupQueryAttention -> {_GROUPED} Cast Less Greater Where Or Tanh Div",
    Exactness.ROUNDING,
    replace(OF_SCORES, note="what onnxruntime computes for the padding of a prompt is not defined"),
    rank=27,
    source=ORT_CONTRIB,
)
def groupqueryattention_parts(at: Site) -> tuple[str, ...]:
    """Attention of queries that share keys and values; each row's keys behind those of the cache that count."""
    return _Grouped.of(at).written(at.input(5))


@pytorch("F.scaled_dot_product_attention(q, k, v, enable_gqa=True), exported without onnxruntime's fused op")
@rule(
    f"com.microsoft::GroupQueryAttention -> {_GROUPED} Tanh Div",
    Exactness.DOMAIN,
    OF_SCORES,
    rank=27,
    source=ORT_CONTRIB,
    domain=Domain(text="no row shorter than total_sequence_length", holds=_is_full),
)
def groupqueryattention_full(at: Site) -> tuple[str, ...]:
    """Attention of queries that share keys and values, for rows without padding: the cache and the new keys joined."""
    return _Grouped.of(at).written(None)


@dataclass(frozen=True, kw_only=True)
class _Grouped:
    """The sizes of a GroupQueryAttention: `total` keys, of which the cache has room for `before`."""

    at: Site
    batch: int
    steps: int
    heads: int
    groups: int
    width: int
    total: int
    before: int

    @classmethod
    def of(cls, at: Site) -> "_Grouped":
        """Read the node; raises NotApplicable for forms that are not written out."""
        for slot in (0, 1, 2, 3, 4, 7, 8, 10, 11):
            if at.has(slot):
                at.demand_dtype(TensorProto.FLOAT, slot=slot)
        at.demand(not at.has(12) and not at.has(13), "the cache is quantised")
        at.demand(not at.attribute("sliding_window_cache", 0), "the cache holds a window only")
        at.demand(at.attribute("causal", 1) == 1, "the attention is not causal")
        at.demand(not at.has(14), "queries are normalised, which onnxruntime does on a GPU only")
        demand_unused(at, 3)
        heads, groups = at.attribute("num_heads", 0), at.attribute("kv_num_heads", 0)
        at.demand(heads > 0 and groups > 0 and heads % groups == 0, "the heads are not in groups of one size")
        batch, steps, hidden = at.shape(0)
        width = hidden // heads if at.has(1) else hidden // (heads + 2 * groups)
        before = at.shape(3)[2] if at.has(3) else 0
        if not at.is_constant(6) and any(at.node.output[1:2]) and at.output_shape(1)[2] > before:
            total = at.output_shape(1)[2]  # a cache that grows has room for all
        else:
            total = int(at.value(6).reshape(-1)[0])
        at.demand(steps <= total <= before + steps, "the cache and the new keys are fewer than all")
        return cls(at=at, batch=batch, steps=steps, heads=heads, groups=groups, width=width, total=total, before=before)

    def written(self, lengths: str | None) -> tuple[str, ...]:
        """The outputs. `lengths` has the number of each row's keys, less one; None where all rows have `total`."""
        at = self.at
        past: int | str = self.total - self.steps
        if lengths is not None and past:
            stored = at.value(5).reshape(-1) if at.is_constant(5) else None
            if stored is not None and (stored == stored[0]).all():
                past = int(stored[0]) + 1 - self.steps
                at.demand(0 <= past <= self.before, "the lengths of the rows do not fit the cache")
            else:
                wide = cast(at, reshape(at, lengths, [self.batch, 1]), TensorProto.INT64)
                past = at.op("Sub", wide, at.integers([self.steps - 1]))
        queries, keys, values = self._inputs(past)
        keys, kept_keys = self._joined(3, keys, past, 1)
        values, kept_values = self._joined(4, values, past, 2)
        return self._attended(queries, keys, values, past), kept_keys, kept_values

    def _inputs(self, past: int | str) -> tuple[str, str, str]:
        """Queries, keys and values, [batch, heads, steps, width], turned as the node says."""
        at, sizes = self.at, (self.heads, self.groups, self.groups)
        given = [at.input(slot) for slot in range(3) if at.has(slot)]
        if len(given) == 1:
            ends = np.cumsum([0, *(size * self.width for size in sizes)]).tolist()
            given = [slice_axis(at, at.input(0), 2, start, end) for start, end in pairwise(ends)]
        rows = [
            reshape(at, tensor, [self.batch, self.steps, size, self.width])
            for tensor, size in zip(given, sizes, strict=True)
        ]
        if at.attribute("do_rotary", 0):
            cosines, sines = (self._angles(slot, past) for slot in (7, 8))
            half, mixed = at.shape(7)[-1], bool(at.attribute("rotary_interleaved", 0))
            for number, size in enumerate(sizes[:2]):
                dims = (self.batch, self.steps, size, self.width)
                rows[number] = _rotated(at, rows[number], dims, cosines, sines, half=half, interleaved=mixed)
        queries, keys, values = (transpose(at, tensor, [0, 2, 1, 3]) for tensor in rows)
        return queries, keys, values

    def _angles(self, slot: int, past: int | str) -> str:
        """The rows of a table of cosines or sines for the new steps, [batch or 1, steps, 1, half]."""
        at, count = self.at, 1
        if at.has(9) and self.steps < self.total:
            count, positions = self.batch, at.input(9)
        elif at.has(9):  # of the positions of a prompt onnxruntime reads the first
            first = slice_axis(at, reshape(at, at.input(9), [self.batch * self.steps]), 0, 0, 1)
            positions = at.op("Add", first, at.integers(range(self.steps)))
        elif isinstance(past, str):
            count, positions = self.batch, at.op("Add", past, at.integers(range(self.steps)))
        else:
            table = slice_axis(at, at.input(slot), 0, past, past + self.steps)
            return reshape(at, table, [1, self.steps, 1, at.shape(slot)[-1]])
        rows = at.op("Gather", at.input(slot), positions, axis=0)
        return reshape(at, rows, [count, self.steps, 1, at.shape(slot)[-1]])

    def _joined(self, slot: int, new: str, past: int | str, output: int) -> tuple[str, str]:
        """The keys, or values, to attend to, and the output that keeps them for the next step."""
        at = self.at
        room = max(self.total, self.before)
        wanted = output < len(at.node.output) and bool(at.node.output[output])
        if isinstance(past, int):
            held = []
            if past:
                held = [at.input(slot) if past == self.before else slice_axis(at, at.input(slot), 2, 0, past)]
            keys = concat(at, [*held, new], 2)
            more = room - past - self.steps
            if not more or not wanted:
                return keys, keys
            return keys, concat(at, [keys, self._zeros(self.batch, more)], 2)
        places, rows = at.integers(range(room)), []
        for row in range(self.batch):
            own = [slice_axis(at, tensor, 0, row, row + 1) for tensor in (at.input(slot), new)]
            first = reshape(at, slice_axis(at, past, 0, row, row + 1), [1])
            end = at.op("Add", first, at.integers([self.steps]))
            moved = at.op("Add", at.op("Sub", places, first), at.integers([self.before]))
            moved = at.op("Where", at.op("Less", places, end), moved, at.integers([self.before + self.steps]))
            order = at.op("Where", at.op("Less", places, first), places, moved)
            rows.append(at.op("Gather", concat(at, [*own, self._zeros(1, 1)], 2), order, axis=2))
        kept = concat(at, rows, 0)
        return (kept if room == self.total else slice_axis(at, kept, 2, 0, self.total)), kept

    def _zeros(self, batch: int, count: int) -> str:
        return self.at.constant(np.zeros((batch, self.groups, count, self.width), np.float32))

    def _attended(self, queries: str, keys: str, values: str, past: int | str) -> str:
        """Softmax of the scaled products of queries and keys, times the values."""
        at = self.at
        count = past + self.steps if isinstance(past, int) else self.total
        by_group = [self.batch, self.groups, self.heads // self.groups * self.steps]
        by_head = [self.batch, self.heads, self.steps]
        scores = at.op("MatMul", reshape(at, queries, [*by_group, self.width]), transpose(at, keys, [0, 1, 3, 2]))
        scores = at.op("Mul", scores, float32(at, at.attribute("scale", 0.0) or 1 / sqrt(self.width)))
        if cap := at.attribute("softcap", 0.0):
            scores = at.op("Mul", at.op("Tanh", at.op("Div", scores, float32(at, cap))), float32(at, cap))
        scores = reshape(at, scores, [*by_head, count])
        if at.has(10):
            bias = at.input(10) if count == at.shape(10)[-1] else slice_axis(at, at.input(10), 3, 0, count)
            scores = at.op("Add", scores, bias)
        if (mask := self._mask(past, count)) is not None:
            scores = at.op("Add", scores, mask)
        shares = self._shares(scores, count)
        result = at.op("MatMul", reshape(at, shares, [*by_group, count]), values)
        result = transpose(at, reshape(at, result, [*by_head, self.width]), [0, 2, 1, 3])
        return reshape(at, result, [self.batch, self.steps, self.heads * self.width])

    def _mask(self, past: int | str, count: int) -> str | None:
        """What is added to the scores: nothing for the keys up to the query's own, within its window."""
        at, window = self.at, self.at.attribute("local_window_size", -1)
        if isinstance(past, int):
            ahead = np.arange(count)[None] - (past + np.arange(self.steps)[:, None])
            masked = (ahead > 0) | ((ahead <= -window) & (window > 0))
            lowered = np.where(masked, np.float32(_LOWEST), np.float32(0))[None, None]
            return at.constant(lowered) if masked.any() else None
        places = at.integers(range(count))
        own = reshape(at, at.op("Add", past, at.integers(range(self.steps))), [self.batch, 1, self.steps, 1])
        hidden = at.op("Greater", places, own)
        if window > 0:
            first = at.op("Sub", own, at.integers([window - 1]))
            hidden = at.op("Or", hidden, at.op("Less", places, first))
        return at.op("Mul", cast(at, hidden, TensorProto.FLOAT), float32(at, _LOWEST))

    def _shares(self, scores: str, count: int) -> str:
        """Softmax of the scores; a sink takes a share that goes to no key."""
        at = self.at
        if at.has(11):
            ones = at.constant(np.ones((self.batch, 1, self.steps, 1), np.float32))
            sink = at.op("Mul", reshape(at, at.input(11), [1, self.heads, 1, 1]), ones)
        elif at.attribute("smooth_softmax", 0):
            sink = at.constant(np.zeros((self.batch, self.heads, self.steps, 1), np.float32))
        else:
            return at.op("Softmax", scores, axis=3)
        return slice_axis(at, at.op("Softmax", concat(at, [scores, sink], 3), axis=3), 3, 0, count)
