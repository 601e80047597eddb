"""GridSample of images and volumes as arithmetic and Gather, DeformConv by GridSample, AffineGrid as a product.

The coordinates of GridSample are computed as onnxruntime computes them, bit for bit, so that they fall between the
same pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import OF_PRODUCTS, Bound, Domain, Values, pytorch, rule
from onnxbisect.rewrites.site import Site, cast, clip, reshape, slice_axis, transpose

#: Farther out, the weights of onnxruntime do not add up to 1.
_FARTHEST = 1000
#: Pixel coordinates beyond this lie outside of every image, and within it float32 holds all halves.
_FAR = float(1 << 22)
_LINEAR, _NEAREST = ("bilinear", "linear"), "nearest"
#: The operator set from which the second of these names is the right one.
_NAMED_LINEAR = 20
#: Places for which a list is made.
_MOST_PIXELS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """Coordinates along one axis of the image, in pixels, and how many pixels the image has there with its rim."""

    pixels: str
    length: int


@pytorch("the pixels looked up in x.flatten(2) and weighted, instead of F.grid_sample(x, grid)")
@rule(
    "GridSample -> Transpose Reshape Slice Pad Add Sub Mul Div Floor Round Clip Cast Gather Abs Less Greater Where",
    Exactness.DOMAIN,
    Bound(epsilons=8, of="the largest magnitude of the image"),
    domain=Domain(
        text="no NaN in the grid; magnitudes up to 1000, far beyond which onnxruntime gives 0",
        holds=lambda values: values[1] is not None and bool((np.abs(values[1]) <= _FARTHEST).all()),
    ),
    rank=21,
    source="https://github.com/airockchip/rknn-toolkit2/issues/276",
)
def gridsample_gather(at: Site) -> str:
    """The pixels around each point looked up in a list of all, and weighted."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand_dtype(TensorProto.FLOAT, slot=1)
    mode, padding = at.attribute("mode", _LINEAR[0]), at.attribute("padding_mode", "zeros")
    batch, channels, *sizes = at.shape(0)
    at.demand(len(sizes) in (2, 3), "it samples neither an image nor a volume")
    at.demand(mode in (*_LINEAR, _NEAREST), f"the mode is {mode}")
    at.demand(padding in ("zeros", "border", "reflection"), f"the padding is {padding}")
    at.demand(0 not in (*at.shape(0), *at.shape(1)), "a tensor is empty")
    image, rim, spatial = at.input(0), int(padding == "zeros"), len(sizes)
    if rim:  # points outside fall on a rim of zeros
        image = at.op("Pad", image, at.integers([0, 0, *[1] * spatial] * 2))
    pixels = [_in_pixels(at, number, length) for number, length in enumerate(reversed(sizes))][::-1]
    if padding == "reflection":
        pixels = [_reflected(at, pixel, length) for pixel, length in zip(pixels, sizes, strict=True)]
    axes = [_Axis(pixels=it, length=length + 2 * rim) for it, length in zip(pixels, sizes, strict=True)]
    # a list of pixels, each with its channels: batches follow one another
    behind = [batch * prod(axis.length for axis in axes), channels]
    listed = reshape(at, transpose(at, image, [0, *range(2, spatial + 2), 1]), behind)
    if mode == _NEAREST:
        nearest = [_place(at, axis, at.op("Round", axis.pixels), rim) for axis in axes]
        sampled = _looked_up(at, listed, axes, nearest)
    else:
        first = [at.op("Floor", axis.pixels) for axis in axes]
        weights = [at.op("Sub", axis.pixels, place) for axis, place in zip(axes, first, strict=True)]
        pairs = [
            (_place(at, axis, place, rim), _place(at, axis, at.op("Add", place, at.scalar(1)), rim))
            for axis, place in zip(axes, first, strict=True)
        ]
        corners = [_looked_up(at, listed, axes, corner) for corner in product(*pairs)]
        for weight in reversed(weights):
            corners = [_between(at, *pair, weight) for pair in zip(corners[::2], corners[1::2], strict=True)]
        (sampled,) = corners
    return transpose(at, sampled, [0, spatial + 1, *range(1, spatial + 1)])


def _in_pixels(at: Site, number: int, length: int) -> str:
    """One coordinate of the grid in pixels, [batch, …, 1]; -1 and 1 are the ends of the image."""
    last = len(at.shape(1)) - 1
    grid = at.op("Add", slice_axis(at, at.input(1), last, number, number + 1), at.scalar(1))
    if at.attribute("align_corners", 0):
        pixels = at.op("Mul", at.op("Mul", grid, at.scalar(0.5)), at.scalar(length - 1))
    else:
        pixels = at.op("Mul", at.op("Sub", at.op("Mul", grid, at.scalar(length)), at.scalar(1)), at.scalar(0.5))
    return clip(at, pixels, -_FAR, _FAR)


def _reflected(at: Site, pixel: str, length: int) -> str:
    """A coordinate outside of the image reflected at its ends until it is inside."""
    first, last = (0.0, length - 1.0) if at.attribute("align_corners", 0) else (-0.5, length - 0.5)
    at.demand(last > first, "an image of one pixel has no inside")
    low, high, wide = (at.scalar(it) for it in (first, last, last - first))

    def folded(outside: str, near: str, far: str, inwards: str, outwards: str) -> str:
        """What is `outside` by so much stands from one end or the other, as often as the image fits in between."""
        times = at.op("Floor", at.op("Div", outside, wide))
        rest = at.op("Sub", outside, at.op("Mul", times, wide))
        odd = at.op("Sub", times, at.op("Mul", at.op("Floor", at.op("Mul", times, at.scalar(0.5))), at.scalar(2)))
        even = at.op("Sub", at.scalar(1), odd)
        from_near, from_far = at.op(inwards, near, rest), at.op(outwards, far, rest)
        return at.op("Add", at.op("Mul", from_near, even), at.op("Mul", from_far, odd))

    below = folded(at.op("Sub", low, pixel), low, high, "Add", "Sub")
    above = folded(at.op("Sub", pixel, high), high, low, "Sub", "Add")
    inside = at.op("Where", at.op("Less", pixel, low), below, pixel)
    return at.op("Where", at.op("Greater", pixel, high), above, inside)


def _place(at: Site, axis: _Axis, pixel: str, rim: int) -> str:
    """The index of whole pixels along an axis; those outside become the outermost, which may be the rim."""
    moved = at.op("Add", pixel, at.scalar(1)) if rim else pixel
    if at.attribute("padding_mode", "zeros") == "reflection" and at.attribute("align_corners", 0):
        last = at.scalar(axis.length - 1)  # behind the last pixel follows the one before it, of weight 0
        moved = at.op("Sub", last, at.op("Abs", at.op("Sub", moved, last)))
    return clip(at, moved, 0, axis.length - 1)


def _looked_up(at: Site, pixels: str, axes: Sequence[_Axis], places: Sequence[str]) -> str:
    """The channels of pixels, [batch, …, channels]; `places` are those along each axis, the slowest first."""
    batch, *points = at.shape(1)[:-1]
    index = cast(at, places[0], TensorProto.INT64)
    if batch > 1:
        first = np.arange(batch, dtype=np.int64).reshape(batch, *[1] * (len(points) + 1)) * axes[0].length
        index = at.op("Add", index, at.constant(first))
    for axis, place in zip(axes[1:], places[1:], strict=True):
        index = at.op("Add", at.op("Mul", index, at.integers([axis.length])), cast(at, place, TensorProto.INT64))
    return at.op("Gather", pixels, reshape(at, index, [batch, *points]), axis=0)


def _between(at: Site, one: str, other: str, weight: str) -> str:
    """The weighted mean of two tensors; `weight` is that of the other."""
    rest = at.op("Sub", at.scalar(1), weight)
    return at.op("Add", at.op("Mul", one, rest), at.op("Mul", other, weight))


@pytorch(
    "places @ theta.transpose(1, 2), places the constant coordinates of all pixels and 1, instead of F.affine_grid"
)
@rule(
    "AffineGrid -> Transpose MatMul Reshape",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=21,
    source="https://github.com/pytorch/pytorch/issues/30563",
)
def affinegrid_matmul(at: Site) -> str:
    """A constant list of the coordinates of all pixels, each with a 1, times the matrices."""
    at.demand_dtype(TensorProto.FLOAT)
    sizes = [int(size) for size in at.value(1)][2:]
    at.demand(0 < prod(sizes) <= _MOST_PIXELS, "there are too many pixels")
    aligned = bool(at.attribute("align_corners", 0))
    at.demand(not aligned or 1 not in sizes, "an axis has one pixel, whose place is defined in several ways")
    share = [1 if aligned else (size - 1) / size for size in sizes]
    lines = [np.linspace(-part, part, size) for part, size in zip(share, sizes, strict=True)]
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(sizes)], -1)
    list_ = at.constant(places.reshape(-1, len(sizes) + 1).astype(np.float32))
    return reshape(at, at.op("MatMul", list_, transpose(at, at.input(0), [0, 2, 1])), at.output_shape())


def _is_finite_and_near(values: Values) -> bool:
    image, offsets, *mask = (values[slot] for slot in (0, 2, 4) if slot < len(values))
    finite = all(it is None or bool(np.isfinite(it).all()) for it in (image, *mask))
    return finite and image is not None and offsets is not None and bool((np.abs(offsets) <= _FARTHEST).all())


@pytorch("F.grid_sample at the places of all kernel points, times the mask, then a conv of 1x1, for deform_conv2d")
@rule(
    "DeformConv -> Reshape Slice Concat Transpose Mul Add GridSample Conv",
    Exactness.DOMAIN,
    Bound(
        epsilons=8,
        of="the largest number of the image times that of the mask, times the sum of a kernel's magnitudes, times the "
        "number of products plus the sizes of the image and the farthest offset",
        absolute=1e-37,
    ),
    domain=Domain(text="no NaN or infinity; offsets up to 1000 pixels", holds=_is_finite_and_near),
    rank=21,
    source="https://github.com/ZhengPeng7/BiRefNet/issues/281",
)
def deformconv_gridsample(at: Site) -> str:
    """All points of the kernel sampled at once by GridSample, times the mask, then a convolution of 1x1."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(at.rank(0) == 4 and 0 not in at.shape(0), "it samples no image")
    batch, channels, *image = at.shape(0)
    kernel, out = at.shape(1)[2:], at.shape(2)[2:]
    points, groups = prod(kernel), at.attribute("offset_group", 1)
    strides, dilations = at.attribute("strides", [1, 1]), at.attribute("dilations", [1, 1])
    steps = zip(image, kernel, out, strides, dilations, at.attribute("pads", [0] * 4)[:2], strict=True)
    fixed = np.zeros((2, points, *out))
    for axis, (length, size, count, stride, dilation, pad) in enumerate(steps):
        along = np.arange(count) * stride - pad
        within = np.arange(size) * dilation
        places = within[:, None] + along[None]  # [kernel, out] along this axis
        spread = places[:, None, :, None] if axis == 0 else places[None, :, None, :]
        whole = np.broadcast_to(spread, (*kernel, *out)).reshape(points, *out)
        fixed[axis] = (2 * whole + 1) / length - 1
    moved = reshape(at, at.input(2), [batch * groups * points, 2, prod(out)])
    grids = []
    for axis in (1, 0):  # GridSample has x before y
        scaled = at.op("Mul", slice_axis(at, moved, 1, axis, axis + 1), at.scalar(2 / image[axis]))
        each = reshape(at, scaled, [batch * groups, points * out[0], out[1], 1])
        grids.append(at.op("Add", each, at.constant(fixed[axis].reshape(1, -1, out[1], 1).astype(np.float32))))
    pixels = reshape(at, at.input(0), [batch * groups, channels // groups, *image])
    mode = _LINEAR[at.opset >= _NAMED_LINEAR]
    sampled = at.op("GridSample", pixels, at.op("Concat", *grids, axis=3), mode=mode, align_corners=0)
    if at.has(4):
        sampled = at.op("Mul", sampled, reshape(at, at.input(4), [batch * groups, 1, points * out[0], out[1]]))
    weight = at.shape(1)
    flat = [weight[0], weight[1] * points, 1, 1]
    kernels = at.constant(at.value(1).reshape(flat)) if at.is_constant(1) else reshape(at, at.input(1), flat)
    bias = [at.input(3)] if at.has(3) else []
    columns = reshape(at, sampled, [batch, channels * points, *out])
    return at.op("Conv", columns, kernels, *bias, group=at.attribute("group", 1), kernel_shape=[1, 1])
