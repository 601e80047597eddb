"""Norms, logarithms of sums, and products along axes as plainer reductions and arithmetic."""

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import FINITE, Bound
from onnxbisect.rewrites.families.reductions import OF_TERMS, reduced
from onnxbisect.rewrites.forms import reduce, reshape, slice_axis
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import operator

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


@pytorch("m = x.amax(dim, True); m + (x - m).exp().sum(dim, True).log() instead of x.logsumexp(dim, True)")
@rule(
    "ReduceLogSumExp -> ReduceMax Sub Exp ReduceSum Log Add Reshape",
    Exactness.DOMAIN,
    Bound(epsilons=4, of="the output, its logarithm's largest part and the number of terms together"),
    domain=FINITE,
    rank=11,
    source=operator("ReduceLogSumExp"),
)
def reducelogsumexp_parts(at: Site) -> str:
    """The largest value plus the logarithm of the sum of exponentials relative to it."""
    x, axes, keepdims = reduced(at)
    largest = reduce(at, "ReduceMax", x, axes, keepdims=True)
    total = reduce(at, "ReduceSum", at.op("Exp", at.op("Sub", x, largest)), axes, keepdims=True)
    result = at.op("Add", at.op("Log", total), largest)
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
    """One Slice for each factor of an axis, multiplied."""
    x, axes, _ = reduced(at)
    at.demand(len(axes) == 1, "several axes are reduced")
    count = at.shape(0)[axes[0]]
    at.demand(0 < count <= _MOST_FACTORS, f"there are {count} factors")
    first, *rest = [slice_axis(at, x, axes[0], place, place + 1) for place in range(count)]
    for factor in rest:
        first = at.op("Mul", first, factor)
    return reshape(at, first, at.output_shape())
