"""Gather, GatherND, GatherElements, Slice and Split, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.cases_fusing import read_elsewhere, written
from support.rewrites.instances import FINITE, Constant, Instance, anything, case, floats, integers, node, opset, shape
from support.rewrites.measured import outputs_of

DrawFn = st.DrawFn


def _gather(draw: DrawFn, indices: np.ndarray | None, data: np.ndarray | None = None) -> Instance:
    x = data if data is not None else anything(draw, shape(draw))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    size = x.shape[axis]
    if indices is None:
        indices = integers(draw, draw(st.sampled_from([(), (1,), (1, 1)])), -size, size - 1)
    else:
        indices = indices % size - draw(st.sampled_from([0, size]))
    return node(
        "Gather",
        x,
        Constant(indices.astype(draw(st.sampled_from([np.int64, np.int32])))),
        axis=axis,
        opset=draw(st.sampled_from([11, 13, 17, 21])),
    )


def _gather_of_computed_indices(draw: DrawFn) -> Instance:
    x = anything(draw, shape(draw))
    return node("Gather", x, np.zeros(draw(st.sampled_from([(), (1,), (3,)])), np.int64), axis=0)


def _gather_of_two(draw: DrawFn) -> Instance:
    return node("Gather", anything(draw, (3, 4)), Constant(np.array([1, 0])), axis=draw(st.integers(0, 1)))


@case("gather-slice", _gather_of_two)
def _(draw: DrawFn) -> Instance:
    return _gather(draw, None)


@case("gather-vector", _gather_of_two)
def _(draw: DrawFn) -> Instance:
    return _gather(draw, integers(draw, (), 0, 100))


@case("gather-slices", _gather_of_computed_indices)
def _(draw: DrawFn) -> Instance:
    return _gather(draw, integers(draw, (draw(st.integers(1, 8)),), 0, 100))


@case("gather-matmul", _gather_of_computed_indices)
def _(draw: DrawFn) -> Instance:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    x = floats(draw, shape(draw), edges=FINITE, dtype=dtype)
    return _gather(draw, integers(draw, shape(draw, 0, 2), 0, 100), x)


def _reversed(draw: DrawFn, first: int = 0, *, long: bool = False) -> Instance:
    x = anything(draw, shape(draw, 2 + first))
    batch = draw(st.integers(first, first + 1))
    time = 2 * first + 1 - batch
    lengths = integers(draw, (x.shape[batch],), 0, x.shape[time])
    if long:
        lengths[0] = x.shape[time] + 1
    given = Constant(lengths) if long or draw(st.booleans()) else lengths
    return node("ReverseSequence", x, given, batch_axis=batch, time_axis=time, opset=opset(draw, 10, 13, 17, 21))


@case("reversesequence-gather", lambda draw: _reversed(draw, 1))
def _(draw: DrawFn) -> Instance:
    return _reversed(draw)


def _gather_of_a_computed_table(draw: DrawFn) -> Instance:
    return node("Gather", anything(draw, (3, 2)), np.zeros(draw(st.sampled_from([(), (1,), (3,)])), np.int64), axis=0)


@case("gather-one-hot", _gather_of_a_computed_table)
def _(draw: DrawFn) -> Instance:
    table = floats(draw, shape(draw), edges=FINITE)
    places = integers(draw, shape(draw, 0, 2), 0, len(table) - 1)
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    return node("Gather", Constant(table), places.astype(dtype), axis=draw(st.sampled_from([0, -table.ndim])))


@case("gather-one-hot-twice", _gather_of_a_computed_table)
def _(draw: DrawFn) -> Instance:
    table = floats(draw, shape(draw), edges=FINITE)
    places = integers(draw, shape(draw, 0, 2), -len(table), len(table) - 1)
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    return node("Gather", Constant(table), places.astype(dtype), axis=draw(st.sampled_from([0, -table.ndim])))


def _gathernd(draw: DrawFn, *, batch: int, beyond: int = 0) -> Instance:
    x = anything(draw, shape(draw, 2))
    deep = draw(st.integers(1, x.ndim - batch))
    sizes = np.array(x.shape[batch : batch + deep])
    lead = (*x.shape[:batch], *shape(draw, 1, 2, 3))
    indices = integers(draw, (*lead, deep), 0, 100) % sizes + beyond
    return node("GatherND", x, Constant(indices), batch_dims=batch, opset=draw(st.sampled_from([12, 13, 17])))


def _gathernd_of_batches(draw: DrawFn) -> Instance:
    return _gathernd(draw, batch=1)


@case("gathernd-gather", _gathernd_of_batches)
def _(draw: DrawFn) -> Instance:
    return _gathernd(draw, batch=0)


def _gatherelements_of_computed(draw: DrawFn) -> Instance:
    return node("GatherElements", anything(draw, (3, 4)), np.zeros((3, 4), np.int64), axis=1)


@case("gatherelements-gather", _gatherelements_of_computed)
def _(draw: DrawFn) -> Instance:
    x = anything(draw, shape(draw))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    dims = [draw(st.integers(1, size)) for size in x.shape]
    dims[axis] = draw(st.integers(1, 6))
    size = x.shape[axis]
    return node("GatherElements", x, Constant(integers(draw, dims, -size, size - 1)), axis=axis)


def _gatherelements_of_constant(draw: DrawFn) -> Instance:
    return node("GatherElements", anything(draw, (3, 4)), Constant(np.zeros((3, 4), np.int64)), axis=1)


@case("gatherelements-computed", _gatherelements_of_constant)
def _(draw: DrawFn) -> Instance:
    x = anything(draw, shape(draw))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    dims = [draw(st.integers(1, size)) for size in x.shape]
    dims[axis] = draw(st.integers(1, 6))
    size = x.shape[axis]
    return node("GatherElements", x, integers(draw, dims, -size, size - 1), axis=axis)


def _slice(draw: DrawFn, *, axes: int, steps: bool) -> Instance:
    x = anything(draw, shape(draw, max(axes, 1), 4, 7))
    chosen = draw(st.permutations(range(x.ndim)))[:axes]
    starts = [draw(st.integers(0, x.shape[axis] - 1)) for axis in chosen]
    ends = [draw(st.sampled_from([x.shape[a], 2**63 - 1, s + 1])) for a, s in zip(chosen, starts, strict=True)]
    step = [draw(st.integers(2, 3)) if steps else 1 for _ in chosen]
    named = [axis - draw(st.sampled_from([0, x.ndim])) for axis in chosen]
    version = draw(st.sampled_from([7, 11, 13, 17])) if not steps else draw(st.sampled_from([11, 13, 17]))
    if version < 10:
        positive = [axis % x.ndim for axis in named]
        return node("Slice", x, starts=starts, ends=ends, axes=positive, opset=version)
    more = [Constant(np.array(named)), *([Constant(np.array(step))] if steps else [])]
    return node("Slice", x, Constant(np.array(starts)), Constant(np.array(ends)), *more, opset=version)


def _slice_with_steps(draw: DrawFn, axes: int) -> Instance:
    """Some steps are negative, as those of a flip are."""
    x = anything(draw, shape(draw, max(axes, 1), 4, 7))
    chosen = draw(st.permutations(range(x.ndim)))[:axes]
    cuts = [draw(_cuts(x.shape[axis])) for axis in chosen]
    named = [axis - draw(st.sampled_from([0, x.ndim])) for axis in chosen]
    starts, ends, steps = zip(*cuts, strict=True)
    values = (Constant(np.array(it)) for it in (starts, ends, named, steps))
    return node("Slice", x, *values, opset=draw(st.sampled_from([11, 13, 17])))


def _cuts(size: int) -> st.SearchStrategy[tuple[int, int, int]]:
    """Start, end and step that leave something of an axis; no step is 1."""
    bounds = st.integers(-size - 2, size + 2) | st.sampled_from([2**63 - 1, -(2**63)])
    cuts = st.tuples(bounds, bounds, st.sampled_from([-1, 2, -2, 3]))
    return cuts.filter(lambda it: bool(range(size)[it[0] : it[1] : it[2]]))


def _slice_backwards(draw: DrawFn) -> Instance:
    ends = (Constant(np.array([value])) for value in (-1, -100, draw(st.integers(0, 1)), -1))
    return node("Slice", anything(draw, (3, 4)), *ends)


def _slice_of_one_axis(draw: DrawFn) -> Instance:
    return _slice(draw, axes=1, steps=False)


@case("slice-axes", _slice_of_one_axis)
def _(draw: DrawFn) -> Instance:
    axes = draw(st.integers(2, 3))
    return _slice_with_steps(draw, axes) if draw(st.booleans()) else _slice(draw, axes=axes, steps=False)


@case("slice-gather", _slice_of_one_axis)
def _(draw: DrawFn) -> Instance:
    return _slice_with_steps(draw, draw(st.integers(1, 3)))


def _slice_of_slice(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw, 1, 4, 7))
    sliced, stored = x, dict[str, list[int]]()
    for number in "ab":
        axis = draw(st.integers(0, x.ndim - 1))
        start, end, step = draw(_cuts(sliced.shape[axis]))
        cut = [slice(None)] * x.ndim
        cut[axis] = slice(start, end, step)
        sliced = sliced[tuple(cut)]
        axis -= draw(st.sampled_from([0, x.ndim]))
        stored |= {f"{number}{part}": [value] for part, value in zip("sexp", (start, end, axis, step), strict=True)}
    body = "c = Slice(x, as, ae, ax, ap) y = Slice(c, bs, be, bx, bp)"
    return written(draw, body, x, version=opset(draw, 11, 17), out=sliced.shape, **stored)


@case("slice-merge", read_elsewhere(_slice_of_slice, "c"))
def _(draw: DrawFn) -> Instance:
    return _slice_of_slice(draw)


def _sliced_conv(draw: DrawFn, *, groups: int = 1, channels: bool = True) -> Instance:
    """Some channels of a convolution, or some rows."""
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    x = floats(draw, (draw(st.integers(1, 2)), inner * groups, 5, 6), edges=(0.0, 1.0, 1e6, -1e-6))
    kernel = floats(draw, (outer * groups, inner, draw(st.integers(1, 3)), 1), edges=(0.0, 1.0))
    bias = floats(draw, (outer * groups,), edges=()) if draw(st.booleans()) else None
    attributes = f"<group = {groups}, {draw(st.sampled_from(['strides = [2, 1]', 'pads = [1, 0, 0, 1]']))}>"
    start, end, step = draw(st.sampled_from([(0, 1, 1), (1, 100, 1), (-1, -100, -1), (0, 100, 2), (-2, 100, 1)]))
    body = f"c = Conv{attributes}(x, k{'' if bias is None else ', b'}) y = Slice(c, start, end, axes, steps)"
    given = {"k": kernel} if bias is None else {"k": kernel, "b": bias}
    sizes = written(
        draw,
        body.split(" y = ")[0].replace("c =", "y ="),
        np.abs(x),
        version=17,
        **{n: np.abs(v) for n, v in given.items()},
    )
    (magnitude,) = outputs_of(sizes.model, sizes.feeds)
    cut = [slice(None)] * 4
    cut[1 if channels else 2] = slice(start, end, step)
    scale = magnitude[tuple(cut)] * (kernel.size + 2)
    places: dict[str, list[int]] = {"start": [start], "end": [end], "axes": [1 if channels else -2], "steps": [step]}
    return written(draw, body, x, version=opset(draw, 11, 17), out=scale.shape, scale=scale, **given, **places)


def _no_sliced_conv(draw: DrawFn) -> Instance:
    forms = (
        lambda draw: _sliced_conv(draw, groups=2),
        lambda draw: _sliced_conv(draw, channels=False),
        read_elsewhere(_sliced_conv, "c"),
    )
    return draw(st.sampled_from(forms))(draw)


@case("slice-conv", _no_sliced_conv)
def _(draw: DrawFn) -> Instance:
    return _sliced_conv(draw)


def _step_too_large(draw: DrawFn) -> Instance:
    values = (Constant(np.array([value])) for value in (1, 100, 0, draw(st.integers(7, 50))))
    return node("Slice", anything(draw, (4,)), *values)


@case("slice-steps", _slice_backwards)
def _(draw: DrawFn) -> Instance:
    x = anything(draw, shape(draw, 1, 3, 9))
    axis = draw(st.integers(0, x.ndim - 1))
    step = draw(st.integers(2, 4).filter(lambda step: step <= x.shape[axis] + 1))
    start = draw(st.integers(0, max(x.shape[axis] - step, 0)))
    values = (Constant(np.array([value])) for value in (start, x.shape[axis], axis, step))
    return node("Slice", x, *values, opset=draw(st.sampled_from([11, 13, 17])))


def _split_of_unknown_size(draw: DrawFn) -> Instance:
    return node("Split", anything(draw, (4, 4)), np.array([1, 3]), outputs=2, axis=draw(st.integers(0, 1)))


@case("split-slices", _split_of_unknown_size)
def _(draw: DrawFn) -> Instance:
    parts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    x = anything(draw, (*shape(draw, 0, 2), sum(parts), *shape(draw, 0, 1)))
    axis = x.shape.index(sum(parts)) if x.shape.count(sum(parts)) == 1 else None
    if axis is None:
        x = anything(draw, (sum(parts),))
        axis = 0
    version = opset(draw, 7, 11, 13, 17, 18)
    if version < 13:
        return node("Split", x, split=parts, axis=axis, outputs=len(parts), opset=version)
    return node("Split", x, Constant(np.array(parts)), axis=axis, outputs=len(parts), opset=version)


@case("arrayfeatureextractor-gather", lambda draw: node("Normalizer", floats(draw, (2, 3)), domain="ai.onnx.ml"))
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw)) if draw(st.booleans()) else integers(draw, shape(draw), -9, 9, np.int64)
    places = integers(draw, draw(st.sampled_from([(1,), (3,), (1, 2)])), 0, x.shape[-1] - 1, np.int64)
    given = Constant(places) if draw(st.booleans()) else places
    return node("ArrayFeatureExtractor", x, given, domain="ai.onnx.ml")
