"""Resize by scales, by matrices and by repetition, and GridSample of images as arithmetic and Gather.

The coordinates of GridSample are computed as onnxruntime computes them, bit for bit, so that they fall between the
same pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import FINITE, Bound, Domain, Values, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site, cast, clip, reshape, slice_axis, transpose

#: Elements along an axis, for which matrices and lists of places are made.
_LONGEST = 8192


def _sizes(at: Site) -> tuple[tuple[int, ...], tuple[int, ...], list[float]]:
    """Shapes before and after a Resize, and the scales that it computes places with."""
    shape, out = at.shape(0), at.output_shape()
    at.demand(at.opset >= 11, "the form of Resize before operator set 11")
    at.demand(not at.has_attribute("axes") and not at.attribute("antialias", 0), "it names axes, or smooths")
    at.demand(at.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "it keeps the aspect ratio")
    at.demand(0 not in shape and 0 not in out, "a tensor is empty")
    if at.has(2) and at.shape(2) != (0,):
        scales = [float(scale) for scale in at.value(2)]
    else:
        scales = [after / before for before, after in zip(shape, out, strict=True)]
    at.demand(len(scales) == len(shape), "the scales do not fit the rank")
    at.demand(max((*shape, *out), default=1) <= _LONGEST, "an axis is too long")
    return shape, out, scales


_Place = Callable[[np.ndarray, float, int, int], np.ndarray]
_PLACES: dict[str, _Place] = {
    "half_pixel": lambda x, scale, before, after: (x + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda x, scale, before, after: (x + 0.5) / scale - 0.5 if after > 1 else x * 0.0,
    "align_corners": lambda x, scale, before, after: x * (before - 1) / (after - 1) if after > 1 else x * 0.0,
    "asymmetric": lambda x, scale, before, after: x / scale,
}


def _places(at: Site, scale: float, before: int, after: int) -> np.ndarray:
    """Where each place of the result lies in the input, along one axis."""
    mode = at.attribute("coordinate_transformation_mode", "half_pixel")
    at.demand(mode in _PLACES, f"the coordinates are {mode}")
    return _PLACES[mode](np.arange(after, dtype=np.float64), scale, before, after)


@pytorch("F.interpolate(x, scale_factor=2) instead of F.interpolate(x, size=(h, w))")
@rule("Resize -> Resize", Exactness.EXACT, rank=38, source=tidl("resize.py"))
def resize_scales(at: Site) -> str:
    """Scales instead of sizes, where they lead to the same ones."""
    at.demand(at.has(3), "it has no sizes")
    shape, out, _ = _sizes(at)
    scales = np.array(out, np.float32) / np.array(shape, np.float32)
    at.demand(bool((np.floor(np.array(shape, np.float32) * scales) == np.array(out)).all()), "a scale rounds otherwise")
    roi = at.node.input[1] or at.constant(np.zeros(0, np.float32))
    return at.like(at.input(0), roi, at.constant(scales))


@pytorch("rows @ x @ columns with constant matrices instead of F.interpolate(x, mode='bilinear')")
@rule(
    "Resize -> MatMul Add",
    Exactness.DOMAIN,
    Bound(epsilons=64, of="the largest magnitude of the input"),
    domain=FINITE,
    rank=38,
    source=operator("Resize"),
)
def resize_linear_matmul(at: Site) -> str:
    """Bilinear interpolation of an image, or of a constant part: a constant matrix for rows and one for columns."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(at.attribute("mode", "nearest") == "linear", "it is not linear")
    shape, out, scales = _sizes(at)
    at.demand(len(shape) == 4 and shape[:2] == out[:2], "other axes than height and width change")
    places = [_places_of(at, axis, scales[axis], shape[axis], out[axis]) for axis in (2, 3)]
    rows, columns = (_interpolation(it, size) for it, size in zip(places, shape[2:], strict=True))
    if _crops(at):  # what lies outside of the image is no neighbour's
        rows, columns = (
            matrix * _are_inside(it, size)[:, None]
            for matrix, it, size in zip((rows, columns), places, shape[2:], strict=True)
        )
    result = at.op("MatMul", at.constant(rows), at.op("MatMul", at.input(0), at.constant(columns.T)))
    inside = np.outer(*(_are_inside(it, size) for it, size in zip(places, shape[2:], strict=True)))
    beyond = at.attribute("extrapolation_value", 0.0)
    if _crops(at) and beyond and not inside.all():
        return at.op("Add", result, at.constant(np.where(inside, 0, beyond).astype(np.float32)))
    return result


def _crops(at: Site) -> bool:
    return at.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"


def _places_of(at: Site, axis: int, scale: float, before: int, after: int) -> np.ndarray:
    """Where each place of the result lies along an axis, which may be cropped to a part of it."""
    if not _crops(at):
        return _places(at, scale, before, after)
    region = at.value(1).astype(np.float64)
    at.demand(region.size == 2 * at.rank(0), "the region does not fit the rank")
    at.demand(all(region[each] == 0 and region[each + at.rank(0)] == 1 for each in (0, 1)), "other axes are cropped")
    whole = region[axis] == 0 and region[axis + at.rank(0)] == 1
    at.demand(before != after or whole, "an axis is cropped and keeps its length, which onnxruntime does not crop")
    start, end = region[axis] * (before - 1), region[axis + at.rank(0)] * (before - 1)
    if after == 1:
        return np.array([(start + end) / 2])
    places: np.ndarray = start + np.arange(after) * (end - start) / (after - 1)
    return places


def _are_inside(places: np.ndarray, size: int) -> np.ndarray:
    inside: np.ndarray = (places >= 0) & (places <= size - 1)
    return inside


def _interpolation(places: np.ndarray, size: int) -> np.ndarray:
    """A matrix that takes each place from its two neighbours."""
    places = np.clip(places, 0, size - 1)
    lower = np.floor(places).astype(int)
    matrix = np.zeros((len(places), size))
    share = places - lower
    np.add.at(matrix, (np.arange(len(places)), lower), 1 - share)
    np.add.at(matrix, (np.arange(len(places)), np.minimum(lower + 1, size - 1)), share)
    return matrix.astype(np.float32)


_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@pytorch("x[..., :, None, :, None].expand(...).reshape(...) instead of F.interpolate(x, scale_factor=2)")
@rule("Resize -> Reshape Expand", Exactness.EXACT, rank=38, source=operator("Resize"))
def resize_nearest_expand(at: Site) -> str:
    """Each pixel a whole number of times: an axis behind each, along which it is repeated."""
    at.demand(at.attribute("mode", "nearest") == "nearest", "it interpolates")
    shape, out, scales = _sizes(at)
    rounding = at.attribute("nearest_mode", "round_prefer_floor")
    at.demand(rounding in _ROUNDED, f"the nearest is {rounding}")
    apart, grown = [], []
    for before, after, scale in zip(shape, out, scales, strict=True):
        at.demand(after % before == 0, "a pixel is not repeated a whole number of times")
        if after != before:
            places = np.clip(_ROUNDED[rounding](_places(at, scale, before, after)), 0, before - 1)
            at.demand(
                bool((places == np.repeat(np.arange(before), after // before)).all()), "pixels are repeated unevenly"
            )
        apart += [before, 1] if after != before else [before]
        grown += [before, after // before] if after != before else [before]
    at.demand(prod(out) != prod(shape), "nothing grows")
    return reshape(at, at.op("Expand", reshape(at, at.input(0), apart), at.integers(grown)), out)


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
