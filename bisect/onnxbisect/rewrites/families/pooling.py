"""Pools in forms that simpler tools have: smaller windows, no sizes rounded up, and other ops in place of a pool."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.families.convolution import written, written_pads
from onnxbisect.rewrites.rule import NO_NAN, OF_PRODUCTS, SIGN_OF_ZERO, Bound, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site, reshape, slice_axis

#: Slices that are made of a pool.
_MOST_SLICES = 32
#: Elements of a kernel that is made for a pool.
_MOST_WEIGHTS = 1 << 22
#: Attributes that a pool and a convolution share.
_OF_WINDOWS = ("pads", "strides", "dilations")
#: The operator set from which Pad reads its pads.
_PADS_AS_INPUT = 11


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """One spatial axis of a pool: `size` pixels with pads `before` and `behind`, and `count` windows."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    behind: int
    count: int

    @property
    def reach(self) -> int:
        """Pixels from the first to the last of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def needed(self) -> int:
        """Pads behind with which the last window just fits."""
        return (self.count - 1) * self.stride + self.reach - self.size - self.before

    @property
    def full(self) -> int:
        """How many windows fit between the pads."""
        return (self.size + self.before + self.behind - self.reach) // self.stride + 1

    def met(self) -> list[int]:
        """How many pixels each window meets that are no pads."""
        starts = (number * self.stride - self.before for number in range(self.count))
        return [sum(0 <= start + step * self.dilation < self.size for step in range(self.kernel)) for start in starts]


def _axes(at: Site) -> list[_Axis]:
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    shape, out = at.shape(0), at.output_shape()
    at.demand(0 not in shape and 0 not in out, "a tensor is empty")
    spatial = len(shape) - 2
    pads = written_pads(at, spatial)
    kernel, strides, dilations = (written(at, name, spatial, 1) for name in ("kernel_shape", "strides", "dilations"))
    return [
        _Axis(
            size=shape[2 + axis],
            kernel=kernel[axis],
            stride=strides[axis],
            dilation=dilations[axis],
            before=pads[axis],
            behind=pads[axis + spatial],
            count=out[2 + axis],
        )
        for axis in range(spatial)
    ]


@pytorch("F.pad(x, …) with what the last windows need, instead of ceil_mode=True")
@rule(
    "MaxPool AveragePool -> MaxPool AveragePool",
    Exactness.EXACT,
    rank=18,
    source="https://github.com/pytorch/executorch/pull/7355",
)
def pool_ceil(at: Site) -> str:
    """Where sizes are rounded up, the pads behind that the last windows need."""
    at.demand(bool(at.attribute("ceil_mode", 0)), "sizes are not rounded up")
    at.demand(not at.attribute("count_include_pad", 0), "the mean is of pads too, but not of those of a cut window")
    axes = _axes(at)
    behind = [axis.behind if axis.full == axis.count else axis.needed for axis in axes]
    at.demand(
        all(0 <= pad < axis.kernel for pad, axis in zip(behind, axes, strict=True)), "a window lies in pads alone"
    )
    return at.like(at.input(0), ceil_mode=None, pads=[*(axis.before for axis in axes), *behind])


@pytorch("F.conv2d(x, torch.full((c, 1, k, k), 1 / k**2), groups=c) instead of F.avg_pool2d(x, k)")
@rule(
    "AveragePool -> Conv Mul",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=18,
    source=operator("AveragePool"),
)
def averagepool_conv(at: Site) -> str:
    """A convolution of each channel by itself; where pads do not count, sums times one over what each window meets."""
    at.demand_dtype(TensorProto.FLOAT)
    axes = _axes(at)
    at.demand(all(axis.full == axis.count for axis in axes), "sizes are rounded up")
    channels, kernel = at.shape(0)[1], [axis.kernel for axis in axes]
    at.demand(channels * prod(kernel) <= _MOST_WEIGHTS, "the kernel would be too large")
    met = [axis.met() for axis in axes]
    even = at.attribute("count_include_pad", 0) == 1 or all(
        min(each) == size for each, size in zip(met, kernel, strict=True)
    )
    counts = np.ones(())
    for it in met:
        counts = np.multiply.outer(counts, it)
    at.demand(even or bool((counts > 0).all()), "a window lies in pads alone")
    weights = np.full((channels, 1, *kernel), 1 / prod(kernel) if even else 1, np.float32)
    kept: dict[str, Any] = {name: at.attribute(name, [0]) for name in _OF_WINDOWS if at.has_attribute(name)}
    sums = at.op("Conv", at.input(0), at.constant(weights), kernel_shape=kernel, group=channels, **kept)
    return sums if even else at.op("Mul", sums, at.constant((1 / counts)[None, None].astype(np.float32)))


@pytorch("torch.maximum of x[..., 0::2], x[..., 1::2], … along each axis instead of F.max_pool2d(x, 2)")
@rule(
    "MaxPool -> Pad Slice Max",
    Exactness.ROUNDING,
    Bound(note="NaN stays NaN, and a MaxPool of onnxruntime passes over it; the sign of zero may differ"),
    rank=18,
    source=operator("MaxPool"),
)
def maxpool_slices(at: Site) -> str:
    """The largest of slices, one for each place of a window: along one axis, then along the next."""
    at.demand_dtype(TensorProto.FLOAT)
    axes = _axes(at)
    at.demand(sum(axis.kernel for axis in axes) <= _MOST_SLICES, "the window is too large")
    at.demand(all(axis.full == axis.count for axis in axes), "sizes are rounded up")
    at.demand(all(0 not in axis.met() for axis in axes), "a window lies in pads alone")
    tensor = at.input(0)
    if any(axis.before or axis.behind for axis in axes):
        at.demand(at.opset >= _PADS_AS_INPUT, "the form of Pad before operator set 11")
        pads = [0, 0, *(axis.before for axis in axes), 0, 0, *(axis.behind for axis in axes)]
        tensor = at.op("Pad", tensor, at.integers(pads), at.scalar(float(np.finfo(np.float32).min)))
    for number, axis in enumerate(axes, 2):
        end = (axis.count - 1) * axis.stride + 1
        places = range(0, axis.reach, axis.dilation)
        parts = [slice_axis(at, tensor, number, place, place + end, axis.stride) for place in places]
        tensor = at.op("Max", *parts) if len(parts) > 1 else parts[0]
    return tensor


@pytorch("F.max_pool2d over height and width, then over depth, instead of F.max_pool3d(x, k)")
@rule(
    "MaxPool -> Reshape MaxPool",
    Exactness.ROUNDING,
    Bound(note="which NaN a MaxPool of onnxruntime passes over depends on their order; the sign of zero may differ"),
    rank=12,
    source=operator("MaxPool"),
)
def maxpool3d_maxpool2d(at: Site) -> str:
    """A pool of three axes: over the last two, then over the first."""
    return _one_axis_after_two(at)


@pytorch("F.avg_pool2d over height and width, then over depth, instead of F.avg_pool3d(x, k)")
@rule("AveragePool -> Reshape AveragePool", Exactness.ROUNDING, OF_PRODUCTS, rank=12, source=operator("AveragePool"))
def averagepool3d_averagepool2d(at: Site) -> str:
    """A pool of three axes: over the last two, then over the first, whose means are of as many pixels each."""
    at.demand_dtype(TensorProto.FLOAT)
    return _one_axis_after_two(at)


def _one_axis_after_two(at: Site) -> str:
    """The pool of height and width in each slice, then of the slices, with a last axis of one pixel."""
    axes = _axes(at)
    at.demand(len(axes) == 3, "it has not three spatial axes")
    at.demand(all(axis.full == axis.count for axis in axes), "sizes are rounded up")
    at.demand(all(0 not in axis.met() for axis in axes), "a window lies in pads alone")
    batch, channels = at.shape(0)[:2]
    depth, height, width = axes
    spare = _Axis(size=1, kernel=1, stride=1, dilation=1, before=0, behind=0, count=1)
    flat = reshape(at, at.input(0), [batch, channels * depth.size, height.size, width.size])
    deep = reshape(at, _pool2d(at, flat, height, width), [batch, channels, depth.size, height.count * width.count])
    return reshape(at, _pool2d(at, deep, depth, spare), at.output_shape())


def _pool2d(at: Site, tensor: str, *axes: _Axis) -> str:
    """The pool of the node over two axes."""
    kept: dict[str, Any] = {"kernel_shape": [axis.kernel for axis in axes], "strides": [axis.stride for axis in axes]}
    kept["pads"] = [*(axis.before for axis in axes), *(axis.behind for axis in axes)]
    if at.has_attribute("dilations"):
        kept["dilations"] = [axis.dilation for axis in axes]
    if at.has_attribute("count_include_pad"):
        kept["count_include_pad"] = at.attribute("count_include_pad", 0)
    return at.op(at.node.op_type, tensor, **kept)


@pytorch("(F.avg_pool2d(x * x, k, s) * k * k).sqrt() instead of F.lp_pool2d(x, 2, k, s)")
@rule(
    "LpPool -> Abs Mul AveragePool Sqrt",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=18,
    source="https://github.com/NVIDIA/TensorRT/issues/3461",
)
def lppool_averagepool(at: Site) -> str:
    """The mean of squares or magnitudes in each window times its size, for p of 2 the root of that."""
    x, power, kernel = at.float32(), at.attribute("p", 2), at.attribute("kernel_shape", [0])
    at.demand(power in (1, 2), f"p is {power}")
    at.demand(not at.attribute("ceil_mode", 0), "windows reach over the border")
    at.demand(at.attribute("auto_pad", "NOTSET") == "NOTSET", "the pads are computed")
    at.demand(set(at.attribute("dilations", [1])) == {1}, "the window is dilated")
    terms = at.op("Mul", x, x) if power == 2 else at.op("Abs", x)
    kept: dict[str, Any] = {name: at.attribute(name, [0]) for name in ("pads", "strides") if at.has_attribute(name)}
    pooled = at.op("AveragePool", terms, kernel_shape=kernel, count_include_pad=1, **kept)
    total = at.op("Mul", pooled, at.scalar(prod(kernel)))
    return at.op("Sqrt", total) if power == 2 else total


@pytorch("F.max_pool2d(F.max_pool2d(x, 3, 1, 1), 3, 1, 1) instead of F.max_pool2d(x, 5, 1, 2)")
@rule("MaxPool -> MaxPool", Exactness.DOMAIN, SIGN_OF_ZERO, domain=NO_NAN, rank=3, source=tidl("maxpool.py"))
def maxpool_cascade(at: Site) -> str:
    """A square window of odd size that moves by 1: windows of 3x3, one behind the other."""
    kernel = at.attribute("kernel_shape", [0])
    at.demand(not any(at.node.output[1:]), "a second output is in use")
    at.demand(len(kernel) == 2 and kernel[0] == kernel[1] and kernel[0] % 2 == 1, "the window is not square and odd")
    half = kernel[0] // 2
    at.demand(1 < half <= 16, "the window is no larger than 3, or too large")
    plain = written(at, "strides", 2, 1) == [1, 1] and written(at, "dilations", 2, 1) == [1, 1]
    at.demand(
        plain and written_pads(at, 2) == [half] * 4, "it has strides, dilations or other pads than half of its size"
    )
    tensor = at.input(0)
    for _ in range(half):
        tensor = at.op("MaxPool", tensor, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    return tensor


@pytorch("F.avg_pool2d(F.avg_pool2d(x, 4), 4) instead of F.avg_pool2d(x, 16)")
@rule("AveragePool -> AveragePool", Exactness.ROUNDING, OF_PRODUCTS, rank=3, source="https://gitee.com/ascend/msit")
def averagepool_cascade(at: Site) -> str:
    """A window that moves by its own size, as two windows whose sizes make up its size."""
    at.demand_dtype(TensorProto.FLOAT)
    kernel = list(at.attribute("kernel_shape", [0]))
    spatial = len(kernel)
    at.demand(
        written(at, "strides", spatial, 1) == kernel and not any(written_pads(at, spatial)), "it has pads or overlaps"
    )
    at.demand(written(at, "dilations", spatial, 1) == [1] * spatial, "it has dilations")
    at.demand(at.attribute("ceil_mode", 0) == 0, "the last window may be cut")
    first = [max(part for part in range(1, int(size**0.5) + 1) if size % part == 0) for size in kernel]
    at.demand(any(part > 1 for part in first), "the size of the window is prime")
    second = [size // part for size, part in zip(kernel, first, strict=True)]
    once = at.op("AveragePool", at.input(0), kernel_shape=first, strides=first)
    return at.op("AveragePool", once, kernel_shape=second, strides=second)
