"""Sums, means, extremes, norms, products and Softmax along axes, by one another and by plainer arithmetic."""

from dataclasses import replace
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import FINITE, NO_NAN, SIGN_OF_ZERO, Bound, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import FLOATS, Site, cast, concat, reduce, reshape, slice_axis, transpose

#: Sums in another order: each term can lose an epsilon of all.
OF_TERMS = Bound(epsilons=1, of="the sum of the terms' magnitudes, times their number", absolute=1e-37)
#: Elements of a column of ones.
_LONGEST_SUM = 1 << 20
#: Ops with the attribute `keepdims`.
_REDUCING = (
    "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)


def reduced(at: Site) -> tuple[str, tuple[int, ...], bool]:
    """The input, the axes and whether they are kept, of a float32 node."""
    at.demand_dtype(TensorProto.FLOAT)
    # The axes that the node reduces.
    rank = at.rank(0)
    axes = at.axes(rank)
    if not axes:  # an empty list means all axes, unless the node says that it means none
        at.demand(not at.attribute("noop_with_empty_axes", 0), "the node reduces nothing")
        axes = tuple(range(rank))
    return at.input(0), axes, bool(at.attribute("keepdims", 1))


@pytorch("-(-x).amax(dim) instead of x.amin(dim)")
@rule("ReduceMin -> Mul ReduceMax", Exactness.ROUNDING, SIGN_OF_ZERO, rank=11, source=operator("ReduceMin"))
def reducemin_max(at: Site) -> str:
    """-ReduceMax(-x)."""
    x, axes, keepdims = reduced(at)
    minus = at.scalar(-1)
    return at.op("Mul", reduce(at, "ReduceMax", at.op("Mul", x, minus), axes, keepdims=keepdims), minus)


@pytorch("x.flatten(2) @ torch.full((h * w, 1), 1 / (h * w)) instead of x.mean((2, 3))")
@rule("ReduceSum ReduceMean -> Reshape MatMul", Exactness.ROUNDING, OF_TERMS, rank=3, source=tidl("reducemean.py"))
def reducesum_matmul(at: Site) -> str:
    """The last axes flattened, times a column of ones, or of one by their number for the mean."""
    x, axes, _ = reduced(at)
    shape = at.shape(0)
    at.demand(axes == tuple(range(len(shape) - len(axes), len(shape))), "other axes than the last are reduced")
    count = prod(shape[axis] for axis in axes)
    at.demand(0 < count <= _LONGEST_SUM, f"{count} elements are summed")
    part = 1 / count if at.node.op_type == "ReduceMean" else 1.0
    rows = reshape(at, x, [prod(shape) // count, count])
    return reshape(at, at.op("MatMul", rows, at.constant(np.full((count, 1), part, np.float32))), at.output_shape())


@pytorch("x.sum(dim) * (1 / n) instead of x.mean(dim)")
@rule("ReduceMean -> ReduceSum Mul", Exactness.ROUNDING, OF_TERMS, rank=11, source=operator("ReduceMean"))
def reducemean_sum(at: Site) -> str:
    """The sum times one by the number of terms."""
    x, axes, keepdims = reduced(at)
    count = prod(at.shape(0)[axis] for axis in axes)
    at.demand(count > 0, "the mean of nothing")
    return at.op("Mul", reduce(at, "ReduceSum", x, axes, keepdims=keepdims), at.scalar(1 / count))


@pytorch("x.mean(dim) * n instead of x.sum(dim)")
@rule("ReduceSum -> ReduceMean Mul", Exactness.ROUNDING, OF_TERMS, rank=11, source=operator("ReduceSum"))
def reducesum_mean(at: Site) -> str:
    """The mean times the number of terms."""
    x, axes, keepdims = reduced(at)
    count = prod(at.shape(0)[axis] for axis in axes)
    at.demand(count > 0, "the sum of nothing")
    return at.op("Mul", reduce(at, "ReduceMean", x, axes, keepdims=keepdims), at.scalar(count))


@pytorch("F.adaptive_avg_pool2d(x, 1) instead of x.mean((2, 3), True)")
@rule(
    "ReduceMean -> GlobalAveragePool Reshape",
    Exactness.ROUNDING,
    OF_TERMS,
    rank=11,
    source=operator("GlobalAveragePool"),
)
def reducemean_pool(at: Site) -> str:
    """The mean over height and width as GlobalAveragePool."""
    x, axes, keepdims = reduced(at)
    at.demand(at.rank(0) == 4 and axes == (2, 3), "other axes than height and width of an image")
    pooled = at.op("GlobalAveragePool", x)
    return pooled if keepdims else reshape(at, pooled, at.output_shape())


@pytorch("x.mean((2, 3), True) instead of F.adaptive_avg_pool2d(x, 1)")
@rule("GlobalAveragePool -> ReduceMean", Exactness.ROUNDING, OF_TERMS, rank=3, source=operator("ReduceMean"))
def globalaveragepool_mean(at: Site) -> str:
    """The mean over all axes but the first two."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(at.rank(0) > 2, "there is no spatial axis")
    return reduce(at, "ReduceMean", at.input(0), range(2, at.rank(0)), keepdims=True)


@pytorch("x.amax((2, 3), True) instead of F.adaptive_max_pool2d(x, 1)")
@rule(
    "GlobalMaxPool -> ReduceMax",
    Exactness.ROUNDING,
    Bound(note="GlobalMaxPool passes over NaN and never gives -infinity in onnxruntime; the sign of zero may differ"),
    rank=3,
    source=operator("ReduceMax"),
)
def globalmaxpool_max(at: Site) -> str:
    """The largest number along all axes but the first two."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(at.rank(0) > 2, "there is no spatial axis")
    return reduce(at, "ReduceMax", at.input(0), range(2, at.rank(0)), keepdims=True)


@pytorch("x.mean(3, True).mean(2, True) instead of x.mean((2, 3), True)")
@rule(
    "ReduceMax ReduceMin ReduceSum ReduceMean -> ReduceMax ReduceMin ReduceSum ReduceMean Reshape",
    Exactness.DOMAIN,
    Bound(epsilons=1, of=OF_TERMS.of, absolute=1e-37, note="the sign of zero may differ"),
    domain=NO_NAN,
    rank=11,
    source=tidl("reducemean.py"),
)
def reduce_axes(at: Site) -> str:
    """Several axes, one at a time."""
    x, axes, keepdims = reduced(at)
    at.demand(len(axes) > 1, "one axis is reduced")
    at.demand(prod(at.shape(0)) > 0, "a tensor is empty")
    for axis in reversed(axes):
        x = reduce(at, at.node.op_type, x, [axis], keepdims=True)
    return x if keepdims else reshape(at, x, at.output_shape())


@pytorch("x.mean(1, keepdim=True).reshape(...) instead of x.mean(1)")
@rule(f"{_REDUCING} -> {_REDUCING} Reshape", Exactness.EXACT, rank=44, source=tidl("argmax.py"))
def reduce_keepdims(at: Site) -> str:
    """The reduced axes kept as ones, then a Reshape."""
    at.demand(at.attribute("keepdims", 1) == 0, "the axes are kept already")
    return reshape(at, at.like(*at.node.input, keepdims=1), at.output_shape())


_RKNN = "https://github.com/rockchip-linux/rknn-toolkit2/issues/300"
_MOST_FACTORS = 32


@pytorch("(x * x).sum(dim).sqrt() instead of x.norm(dim=dim)")
@rule("ReduceL2 -> Mul ReduceSum Sqrt", Exactness.ROUNDING, OF_TERMS, rank=11, source=_RKNN)
def reducel2_parts(at: Site) -> str:
    """The root of the sum of squares."""
    x, axes, keepdims = reduced(at)
    return at.op("Sqrt", reduce(at, "ReduceSum", at.op("Mul", x, x), axes, keepdims=keepdims))


@pytorch("x.abs().sum(dim) instead of x.norm(1, dim)")
@rule("ReduceL1 -> Abs ReduceSum", Exactness.ROUNDING, OF_TERMS, rank=11, source=operator("ReduceL1"))
def reducel1_parts(at: Site) -> str:
    """The sum of magnitudes."""
    x, axes, keepdims = reduced(at)
    return reduce(at, "ReduceSum", at.op("Abs", x), axes, keepdims=keepdims)


@pytorch("(x * x).sum(dim)")
@rule(
    "ReduceSumSquare -> Mul ReduceSum",
    Exactness.ROUNDING,
    OF_TERMS,
    rank=11,
    source="https://github.com/rockchip-linux/rknn-toolkit2/issues/253",
)
def reducesumsquare_parts(at: Site) -> str:
    """The sum of squares."""
    x, axes, keepdims = reduced(at)
    return reduce(at, "ReduceSum", at.op("Mul", x, x), axes, keepdims=keepdims)


_OF_TERMS_EXP = Bound(epsilons=4, of="the output, its logarithm's largest part and the number of terms together")


@pytorch("m = x.amax(dim, True); m + (x - m).exp().sum(dim, True).log() instead of x.logsumexp(dim, True)")
@rule(
    "ReduceLogSumExp -> ReduceMax Sub Exp ReduceSum Log Add Reshape",
    Exactness.DOMAIN,
    _OF_TERMS_EXP,
    domain=FINITE,
    rank=11,
    source=operator("ReduceLogSumExp"),
)
def reducelogsumexp_parts(at: Site) -> str:
    """The largest value plus the logarithm of the sum of exponentials relative to it."""
    x, axes, keepdims = reduced(at)
    return _log_of_exponentials(at, reduce(at, "ReduceMax", x, axes, keepdims=True), axes, keepdims=keepdims)


@pytorch("m = x.amax(dim, True); m = m.where(m.abs() < inf, 0); m + (x - m).exp().sum(dim, True).log()")
@rule(
    "ReduceLogSumExp -> ReduceMax Abs Less Where Sub Exp ReduceSum Log Add Reshape",
    Exactness.ROUNDING,
    replace(_OF_TERMS_EXP, note="NaN beside infinity makes NaN, as ONNX defines it"),
    rank=11,
    source=operator("ReduceLogSumExp"),
)
def reducelogsumexp_where(at: Site) -> str:
    """The largest value, or 0 if it is infinite, plus the logarithm of the sum of exponentials relative to it."""
    x, axes, keepdims = reduced(at)
    largest = reduce(at, "ReduceMax", x, axes, keepdims=True)
    finite = at.op("Less", at.op("Abs", largest), at.scalar(np.inf))
    return _log_of_exponentials(at, at.op("Where", finite, largest, at.scalar(0)), axes, keepdims=keepdims)


def _log_of_exponentials(at: Site, base: str, axes: tuple[int, ...], *, keepdims: bool) -> str:
    total = reduce(at, "ReduceSum", at.op("Exp", at.op("Sub", at.input(0), base)), axes, keepdims=True)
    result = at.op("Add", at.op("Log", total), base)
    return result if keepdims else reshape(at, result, at.output_shape())


@pytorch("x.sum(dim).log()")
@rule(
    "ReduceLogSum -> ReduceSum Log",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the sum of the terms' magnitudes by the sum, times their number, plus the output"),
    rank=11,
    source=operator("ReduceLogSum"),
)
def reducelogsum_parts(at: Site) -> str:
    """The logarithm of the sum."""
    x, axes, keepdims = reduced(at)
    return at.op("Log", reduce(at, "ReduceSum", x, axes, keepdims=keepdims))


@pytorch("x[:, 0:1] * x[:, 1:2] * … instead of x.prod(1, True)")
@rule("ReduceProd -> Slice Mul Reshape", Exactness.ROUNDING, Bound(epsilons=32), rank=11, source=operator("ReduceProd"))
def reduceprod_slices(at: Site) -> str:
    """One Slice for each factor of an axis, multiplied, one axis after the other."""
    product, axes, _ = reduced(at)
    count = prod(at.shape(0)[axis] for axis in axes)
    at.demand(0 < count <= _MOST_FACTORS, f"there are {count} factors")
    for axis in axes:
        product, *rest = [slice_axis(at, product, axis, place, place + 1) for place in range(at.shape(0)[axis])]
        for factor in rest:
            product = at.op("Mul", product, factor)
    return reshape(at, product, at.output_shape())


@pytorch("x * x[:, :1], the result of that times x[:, 2:3], … instead of x.cumprod(1)")
@rule(
    "CumProd -> Slice Mul Concat",
    Exactness.ROUNDING,
    Bound(epsilons=32),
    rank=11,
    source="https://github.com/tenstorrent/tt-forge-onnx/issues/1481",
)
def cumprod_slices(at: Site) -> str:
    """One Slice for each factor of an axis, each multiplied with all before, joined."""
    x, shape, axis = at.float32(), at.shape(0), int(at.value(1).reshape(()))
    at.demand(-len(shape) <= axis < len(shape), f"axis {axis} does not exist")
    axis %= len(shape)
    count, exclusive, reverse = shape[axis], at.attribute("exclusive", 0), at.attribute("reverse", 0)
    at.demand(0 < count <= _MOST_FACTORS, f"there are {count} factors")
    factors = [slice_axis(at, x, axis, place, place + 1) for place in range(count)]
    if reverse:
        factors.reverse()
    if exclusive:
        one = [*shape[:axis], 1, *shape[axis + 1 :]]
        factors = [at.constant(np.ones(one, np.float32)), *factors[:-1]]
    products = factors[:1]
    for number, factor in enumerate(factors[1:]):
        first = exclusive and not number  # 1 times the factor
        products.append(factor if first else at.op("Mul", products[-1], factor))
    return concat(at, products[::-1] if reverse else products, axis)


@pytorch("x.norm(p, (2, 3), True) instead of F.lp_pool2d over the whole image")
@rule(
    "GlobalLpPool -> ReduceL1 ReduceL2",
    Exactness.ROUNDING,
    OF_TERMS,
    rank=11,
    source="https://github.com/NVIDIA/TensorRT/issues/4514",
)
def globallppool_reduce(at: Site) -> str:
    """The norm over all axes but the first two, for p of 1 and 2."""
    x, power = at.float32(), at.attribute("p", 2)
    at.demand(at.rank(0) > 2, "there is no spatial axis")
    at.demand(power in (1, 2), f"p is {power}")
    return reduce(at, f"ReduceL{power}", x, range(2, at.rank(0)), keepdims=True)


@pytorch("(x.argmax(dim, True) == torch.arange(n)).float()")
@rule(
    "Hardmax -> ArgMax Equal Cast",
    Exactness.DOMAIN,
    domain=NO_NAN,
    rank=11,
    source="https://github.com/alibaba/heterogeneity-aware-lowering-and-optimization/issues/467",
)
def hardmax_argmax(at: Site) -> str:
    """1 at the first place of the largest number along an axis, 0 elsewhere."""
    x, axis = at.float32(), _axis(at)
    shape = at.shape(0)
    at.demand(shape[axis] > 0, "the axis has no elements")
    places = np.arange(shape[axis], dtype=np.int64).reshape([-1, *[1] * (len(shape) - axis - 1)])
    largest = at.op("ArgMax", x, axis=axis, keepdims=1)
    return cast(at, at.op("Equal", largest, at.constant(places)), TensorProto.FLOAT)


#: The operator set from which Softmax works along one axis; before, along all from its axis on.
_ONE_AXIS = 13


def _axis(at: Site) -> int:
    """The axis along which the node normalises."""
    rank = at.rank(0)
    at.demand(rank > 0, "the input is a scalar")
    axis = at.axis(rank, -1 if at.opset >= _ONE_AXIS else 1)
    at.demand(at.opset >= _ONE_AXIS or axis == rank - 1, "it works along several axes")
    return axis


@pytorch("x.transpose(1, -1).softmax(-1).transpose(1, -1) instead of x.softmax(1)")
@rule(
    "Softmax LogSoftmax -> Transpose Softmax LogSoftmax",
    Exactness.ROUNDING,
    Bound(epsilons=2),
    rank=39,
    source=tidl("softmax.py"),
)
def softmax_last_axis(at: Site) -> str:
    """The axis moved to the end and back."""
    at.demand_dtype(*FLOATS)
    axis, rank = _axis(at), at.rank(0)
    at.demand(axis != rank - 1, "it is the last axis")
    swapped = [*range(axis), rank - 1, *range(axis + 1, rank - 1), axis]
    moved = at.op(at.node.op_type, transpose(at, at.input(0), swapped), axis=-1)
    return transpose(at, moved, swapped)


@pytorch("e = (x - x.amax(dim, True)).exp(); e / e.sum(dim, True) instead of x.softmax(dim)")
@rule(
    "Softmax -> ReduceMax Sub Exp ReduceSum Div",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the output, times the length of the axis", absolute=1e-37),
    rank=39,
    source=operator("Softmax"),
)
def softmax_parts(at: Site) -> str:
    """Exponentials relative to the largest, by their sum."""
    at.demand_dtype(TensorProto.FLOAT)
    x, axis = at.input(0), _axis(at)
    grown = at.op("Exp", at.op("Sub", x, reduce(at, "ReduceMax", x, [axis], keepdims=True)))
    return at.op("Div", grown, reduce(at, "ReduceSum", grown, [axis], keepdims=True))


@pytorch("y = x - x.amax(dim, True); y - y.exp().sum(dim, True).log() instead of x.log_softmax(dim)")
@rule(
    "LogSoftmax -> ReduceMax Sub Exp ReduceSum Log",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the largest input, the output and the length of the axis together"),
    rank=39,
    source=operator("LogSoftmax"),
)
def logsoftmax_parts(at: Site) -> str:
    """The input relative to the largest, less the logarithm of the sum of its exponentials."""
    at.demand_dtype(TensorProto.FLOAT)
    x, axis = at.input(0), _axis(at)
    below = at.op("Sub", x, reduce(at, "ReduceMax", x, [axis], keepdims=True))
    return at.op("Sub", below, at.op("Log", reduce(at, "ReduceSum", at.op("Exp", below), [axis], keepdims=True)))
