"""Normalisations as reductions and arithmetic, and as one another."""

from collections.abc import Sequence
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import Bound, Domain, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site, reduce, reshape

#: What a mean and a deviation lose: an epsilon of the largest input for each term, relative to the deviation; squared
#: where the variance is the mean square less the squared mean, as onnxruntime computes it for some of these ops.
OF_ROW = Bound(
    epsilons=2,
    of="gamma times the number of terms times r plus r², r the largest input by the deviation, plus beta",
)

#: Elements of a gamma and a beta that are made up.
_MOST_PIXELS = 1 << 22


def _alone(at: Site) -> str:
    """The input of a float32 node of which only the first output is used."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    return at.input(0)


def standardised(at: Site, x: str, axes: Sequence[int], epsilon: float, slot: int = 0) -> str:
    """The tensor less its mean, by its deviation; it has the element type of the input `slot`."""
    centred = at.op("Sub", x, reduce(at, "ReduceMean", x, axes, keepdims=True))
    return scaled(at, centred, axes, epsilon, slot)


def scaled(at: Site, x: str, axes: Sequence[int], epsilon: float, slot: int = 0) -> str:
    """The tensor by the root of its mean square; it has the element type of the input `slot`."""
    square = reduce(at, "ReduceMean", at.op("Mul", x, x), axes, keepdims=True)
    return at.op("Div", x, at.op("Sqrt", at.op("Add", square, at.scalar(epsilon, slot))))


def _shifted(at: Site, x: str, factors: str, offsets: str) -> str:
    return at.op("Add", at.op("Mul", x, factors), offsets)


@pytorch("d = x - x.mean(-1, True); d / ((d * d).mean(-1, True) + eps).sqrt() * weight + bias")
@rule(
    "LayerNormalization -> ReduceMean Sub Mul Add Sqrt Div",
    Exactness.ROUNDING,
    OF_ROW,
    rank=27,
    source=tidl("layernorm.py"),
)
def layernorm_parts(at: Site) -> str:
    """The mean taken off, divided by the root of the mean square, times gamma, plus beta."""
    x, rank = _alone(at), at.rank(0)
    at.demand(at.attribute("stash_type", 1) == 1, "the statistics are not float32")
    axes = range(at.axis(rank, -1), rank)
    scaled = at.op("Mul", standardised(at, x, axes, at.attribute("epsilon", 1e-5)), at.input(1))
    return at.op("Add", scaled, at.input(2)) if at.has(2) else scaled


def _by_channel(at: Site, slot: int, rank: int) -> str:
    """A list for the channels, in a shape that broadcasts over batch and space."""
    return reshape(at, at.input(slot), [at.shape(slot)[0], *[1] * (rank - 2)])


@pytorch("d = x - x.mean((2, 3), True); d / ((d * d).mean((2, 3), True) + eps).sqrt() * weight + bias")
@rule(
    "InstanceNormalization -> ReduceMean Sub Mul Add Sqrt Div Reshape",
    Exactness.ROUNDING,
    OF_ROW,
    rank=27,
    source=operator("InstanceNormalization"),
)
def instancenorm_parts(at: Site) -> str:
    """The mean over space taken off, divided by the root of the mean square, times gamma, plus beta."""
    x, rank = _alone(at), at.rank(0)
    at.demand(rank > 2, "there is no spatial axis")
    whole = standardised(at, x, range(2, rank), at.attribute("epsilon", 1e-5))
    return _shifted(at, whole, _by_channel(at, 1, rank), _by_channel(at, 2, rank))


@pytorch("F.layer_norm(x.flatten(2), (h * w,)).reshape(x.shape) * weight + bias instead of F.instance_norm(x)")
@rule(
    "InstanceNormalization -> Reshape LayerNormalization Mul Add",
    Exactness.ROUNDING,
    OF_ROW,
    rank=27,
    source=tidl("instancenorm.py"),
)
def instancenorm_layernorm(at: Site) -> str:
    """LayerNormalization of each channel's pixels in a row, then gamma and beta."""
    x, shape = _alone(at), at.shape(0)
    at.demand(len(shape) > 2, "there is no spatial axis")
    pixels = prod(shape[2:])
    at.demand(pixels <= _MOST_PIXELS, "there are too many pixels for a gamma of each")
    rows = reshape(at, x, [shape[0], shape[1], pixels])
    ones, zeros = at.constant(np.ones(pixels, np.float32)), at.constant(np.zeros(pixels, np.float32))
    plain = at.op("LayerNormalization", rows, ones, zeros, axis=-1, epsilon=at.attribute("epsilon", 1e-5))
    return _shifted(at, reshape(at, plain, shape), _by_channel(at, 1, len(shape)), _by_channel(at, 2, len(shape)))


def _spread(at: Site, slot: int, groups: int, channels: int) -> str:
    """Gamma or beta of GroupNormalization for each channel, where older operator sets have one for each group."""
    values = at.value(slot)
    if values.size == groups != channels:
        values = np.repeat(values, channels // groups)
    at.demand(values.size == channels, "gamma or beta is neither for each channel nor for each group")
    return at.constant(values)


@pytorch("g = x.reshape(n, groups, -1); (g - g.mean(-1, True)) / …; reshape; * weight + bias")
@rule(
    "GroupNormalization -> Reshape ReduceMean Sub Mul Add Sqrt Div",
    Exactness.ROUNDING,
    OF_ROW,
    rank=27,
    source=operator("GroupNormalization"),
)
def groupnorm_parts(at: Site) -> str:
    """Each group in a row, the mean taken off, divided by the root of the mean square; then gamma and beta."""
    x, shape = _alone(at), at.shape(0)
    groups = at.attribute("num_groups", 0)
    at.demand(len(shape) > 1 and groups > 0 and shape[1] % groups == 0, "the channels do not make up the groups")
    rows = reshape(at, x, [shape[0], groups, prod(shape[1:]) // groups])
    whole = reshape(at, standardised(at, rows, [2], at.attribute("epsilon", 1e-5)), shape)
    inner = [shape[1], *[1] * (len(shape) - 2)]
    factors, offsets = (reshape(at, _spread(at, slot, groups, shape[1]), inner) for slot in (1, 2))
    return _shifted(at, whole, factors, offsets)


@pytorch("x / ((x * x).mean(-1, True) + eps).sqrt() * weight instead of F.rms_norm(x)")
@rule(
    "RMSNormalization SimplifiedLayerNormalization -> Mul ReduceMean Add Sqrt Div",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the output, times the number of terms"),
    rank=27,
    source=operator("RMSNormalization"),
)
def rmsnorm_parts(at: Site) -> str:
    """Divided by the root of the mean square, times gamma; onnxruntime's fused op of that kind, too."""
    x, rank = _alone(at), at.rank(0)
    at.demand(at.attribute("stash_type", 1) == 1, "the statistics are not float32")
    axes = range(at.axis(rank, -1), rank)
    return at.op("Mul", scaled(at, x, axes, at.attribute("epsilon", 1e-5)), at.input(1))


@pytorch("x / (x * x).sum(dim, True).sqrt() instead of F.normalize(x, dim=dim)")
@rule(
    "LpNormalization -> Mul ReduceSum Sqrt Abs Div",
    Exactness.DOMAIN,
    Bound(epsilons=2, of="the output, times the number of terms"),
    domain=Domain(
        text="no row of zeros; checked as: no zero",
        holds=lambda values: values[0] is not None and bool((values[0] != 0).all()),
    ),
    rank=11,
    source="https://github.com/rockchip-linux/rknn-toolkit2/issues/300",
)
def lpnorm_parts(at: Site) -> str:
    """The input by the root of its sum of squares, or by its sum of magnitudes."""
    x, axis = _alone(at), at.axis(at.rank(0), -1)
    if at.attribute("p", 2) == 1:
        return at.op("Div", x, reduce(at, "ReduceSum", at.op("Abs", x), [axis], keepdims=True))
    return at.op("Div", x, at.op("Sqrt", reduce(at, "ReduceSum", at.op("Mul", x, x), [axis], keepdims=True)))


def _inference(at: Site) -> str:
    x = _alone(at)
    at.demand(at.attribute("training_mode", 0) == 0, "it is in training mode")
    at.demand(at.attribute("spatial", 1) == 1, "the statistics are not for each channel")
    return x


@pytorch("x * (weight / (var + eps).sqrt()) + (bias - mean * …), computed once")
@rule(
    "BatchNormalization -> Mul Add",
    Exactness.ROUNDING,
    Bound(epsilons=4, of="the input and the mean by the deviation, times gamma, plus beta"),
    rank=30,
    source=tidl("batchnorm.py"),
)
def batchnorm_mul_add(at: Site) -> str:
    """Factors and offsets for each channel, computed beforehand."""
    x, rank = _inference(at), at.rank(0)
    at.demand(rank > 1, "there are no channels")
    gamma, beta, mean, variance = (at.value(slot).astype(np.float64) for slot in (1, 2, 3, 4))
    root = np.sqrt(variance + at.attribute("epsilon", 1e-5))
    at.demand(bool((root > 0).all()), "a variance is negative")
    factors = (gamma / root).astype(np.float32)
    offsets = (beta - mean * gamma / root).astype(np.float32)
    dims = (-1, *[1] * (rank - 2))
    return _shifted(at, x, at.constant(factors.reshape(dims)), at.constant(offsets.reshape(dims)))


@pytorch("(x - mean) * (weight / (var + eps).sqrt()) + bias, with weights that are computed")
@rule(
    "BatchNormalization -> Reshape Sub Add Sqrt Div Mul",
    Exactness.ROUNDING,
    Bound(epsilons=4, of="the input and the mean by the deviation, times gamma, plus beta"),
    rank=30,
    source="https://github.com/microsoft/onnxruntime/issues/22819",
)
def batchnorm_parts(at: Site) -> str:
    """The mean taken off, times gamma by the deviation, plus beta, of which some are computed."""
    x, rank = _inference(at), at.rank(0)
    at.demand(rank > 1, "there are no channels")
    at.demand(not all(at.is_constant(slot) for slot in (1, 2, 3, 4)), "all are constant")
    gamma, beta, mean, variance = (_by_channel(at, slot, rank) for slot in (1, 2, 3, 4))
    root = at.op("Sqrt", at.op("Add", variance, at.scalar(at.attribute("epsilon", 1e-5))))
    return _shifted(at, at.op("Sub", x, mean), at.op("Div", gamma, root), beta)


@pytorch("F.batch_norm(x[:, :, None, None], …).flatten(1) instead of F.batch_norm(x, …)")
@rule("BatchNormalization -> Reshape BatchNormalization", Exactness.EXACT, rank=30, source=tidl("batchnorm.py"))
def batchnorm_image(at: Site) -> str:
    """A tensor of other than four axes as an image, and back."""
    x, shape = _inference(at), at.shape(0)
    at.demand(len(shape) in (2, 3, 5), "it is an image already")
    image = [*shape[:2], *([1, 1] if len(shape) == 2 else [shape[2], prod(shape[3:])])]
    flat = at.like(reshape(at, x, image), *at.node.input[1:])
    return reshape(at, flat, shape)


@pytorch("x / (k + alpha * F.avg_pool2d((x * x).flatten(2)[:, None], (n, 1), 1, (n // 2, 0)).view_as(x)) ** beta")
@rule(
    "LRN -> Mul Reshape AveragePool Add Pow Div",
    Exactness.DOMAIN,
    Bound(
        epsilons=8,
        of="the output, times the number of channels, times 1 plus alpha by bias times the largest square",
    ),
    domain=Domain(
        text="magnitudes up to 1000",
        holds=lambda values: values[0] is not None and bool((np.abs(values[0]) <= 1000).all()),
    ),
    rank=27,
    source="https://github.com/tracel-ai/burn-onnx/issues/154",
)
def lrn_pool(at: Site) -> str:
    """The mean square of neighbouring channels by AveragePool along them; then the power, and the division."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, size = at.shape(0), at.attribute("size", 1)
    at.demand(len(shape) == 4 and size % 2 == 1, "it is no image, or there is no channel in the middle")
    bias, alpha = at.attribute("bias", 1.0), at.attribute("alpha", 1e-4)
    at.demand(0 <= alpha <= bias / 500, "alpha is too large beside bias: onnxruntime loses too many digits")
    squares = reshape(at, at.op("Mul", at.input(0), at.input(0)), [shape[0], 1, shape[1], prod(shape[2:])])
    rim = [size // 2, 0, size // 2, 0]
    mean = at.op("AveragePool", squares, kernel_shape=[size, 1], pads=rim, count_include_pad=1)
    base = at.op("Add", at.op("Mul", reshape(at, mean, shape), at.scalar(alpha)), at.scalar(bias))
    return at.op("Div", at.input(0), at.op("Pow", base, at.scalar(at.attribute("beta", 0.75))))
