"""GridSample of images as arithmetic and Gather.

The coordinates are computed as onnxruntime computes them, bit for bit, so that they fall between the same pixels.
"""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound, Domain, Values
from onnxbisect.rewrites.forms import cast, clip, reshape, slice_axis, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site

#: Farther out, the weights of onnxruntime do not add up to 1.
_FARTHEST = 1000
#: Pixel coordinates beyond this lie outside of every image, and within it float32 holds all halves.
_FAR = float(1 << 22)
_LINEAR, _NEAREST = ("bilinear", "linear"), "nearest"


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """Coordinates along one axis of the image, in pixels, and how many pixels the image has there with its rim."""

    pixels: str
    length: int


def _is_near(values: Values) -> bool:
    return values[1] is not None and bool((np.abs(values[1]) <= _FARTHEST).all())


@pytorch("the pixels looked up in x.flatten(2) and weighted, instead of F.grid_sample(x, grid)")
@rule(
    "GridSample -> Transpose Reshape Slice Pad Add Sub Mul Floor Round Clip Cast Gather",
    Exactness.DOMAIN,
    Bound(epsilons=8, of="the largest magnitude of the image"),
    domain=Domain(
        text="no NaN in the grid; magnitudes up to 1000, far beyond which onnxruntime gives 0", holds=_is_near
    ),
    rank=21,
    source="https://github.com/airockchip/rknn-toolkit2/issues/276",
)
def gridsample_gather(at: Site) -> str:
    """The pixels around each point looked up in a list of all, and weighted."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand_dtype(TensorProto.FLOAT, slot=1)
    mode, padding = at.attribute("mode", _LINEAR[0]), at.attribute("padding_mode", "zeros")
    at.demand(len(at.shape(0)) == 4, "it does not sample an image")
    at.demand(mode in (*_LINEAR, _NEAREST), f"the mode is {mode}")
    at.demand(padding in ("zeros", "border"), f"the padding is {padding}")
    batch, channels, height, width = at.shape(0)
    at.demand(0 not in (*at.shape(0), *at.shape(1)), "a tensor is empty")
    image, rim = at.input(0), int(padding == "zeros")
    if rim:  # points outside fall on a rim of zeros
        image = at.op("Pad", image, at.integers([0, 0, 1, 1, 0, 0, 1, 1]))
    x, y = (
        _Axis(pixels=_in_pixels(at, number, length), length=length + 2 * rim)
        for number, length in enumerate((width, height))
    )
    # a list of pixels, each with its channels: batches follow one another
    pixels = reshape(at, transpose(at, image, [0, 2, 3, 1]), [batch * y.length * x.length, channels])
    if mode == _NEAREST:
        column, row = (_place(at, axis, at.op("Round", axis.pixels), rim) for axis in (x, y))
        return transpose(at, _looked_up(at, pixels, column, row, x, y), [0, 3, 1, 2])
    left, top = at.op("Floor", x.pixels), at.op("Floor", y.pixels)
    rightness, lowness = at.op("Sub", x.pixels, left), at.op("Sub", y.pixels, top)
    columns, rows = (
        [_place(at, axis, first, rim), _place(at, axis, at.op("Add", first, at.scalar(1)), rim)]
        for axis, first in ((x, left), (y, top))
    )
    (one, two), (three, four) = ([_looked_up(at, pixels, column, row, x, y) for column in columns] for row in rows)
    upper, lower = _between(at, one, two, rightness), _between(at, three, four, rightness)
    return transpose(at, _between(at, upper, lower, lowness), [0, 3, 1, 2])


def _in_pixels(at: Site, number: int, length: int) -> str:
    """One coordinate of the grid in pixels, [batch, height, width, 1]; -1 and 1 are the ends of the image."""
    grid = at.op("Add", slice_axis(at, at.input(1), 3, number, number + 1), at.scalar(1))
    if at.attribute("align_corners", 0):
        pixels = at.op("Mul", at.op("Mul", grid, at.scalar(0.5)), at.scalar(length - 1))
    else:
        pixels = at.op("Mul", at.op("Sub", at.op("Mul", grid, at.scalar(length)), at.scalar(1)), at.scalar(0.5))
    return clip(at, pixels, -_FAR, _FAR)


def _place(at: Site, axis: _Axis, pixel: str, rim: int) -> str:
    """The index of whole pixels along an axis; those outside become the outermost, which may be the rim."""
    moved = at.op("Add", pixel, at.scalar(1)) if rim else pixel
    return clip(at, moved, 0, axis.length - 1)


def _looked_up(at: Site, pixels: str, column: str, row: str, x: _Axis, y: _Axis) -> str:
    """The channels of pixels, [batch, height, width, channels]."""
    batch, height, width, _ = at.shape(1)
    rows = cast(at, row, TensorProto.INT64)
    if batch > 1:
        first = np.arange(batch, dtype=np.int64).reshape(batch, 1, 1, 1) * y.length
        rows = at.op("Add", rows, at.constant(first))
    index = at.op("Add", at.op("Mul", rows, at.integers([x.length])), cast(at, column, TensorProto.INT64))
    return at.op("Gather", pixels, reshape(at, index, [batch, height, width]), axis=0)


def _between(at: Site, one: str, other: str, weight: str) -> str:
    """The weighted mean of two tensors; `weight` is that of the other."""
    rest = at.op("Sub", at.scalar(1), weight)
    return at.op("Add", at.op("Mul", one, rest), at.op("Mul", other, weight))
