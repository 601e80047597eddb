"""Resize by scales, by constant matrices, by repetition and by lookup."""

from collections.abc import Callable
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import FINITE, Bound, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site, reshape

#: Elements along an axis, for which matrices and lists of places are made.
_LONGEST = 8192
#: Least sum of the weights of neighbours that are inside: divided by less, onnxruntime's rounding of them shows.
_LEAST_INSIDE = 0.75


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


def _places(at: Site, scale: float, before: int, after: int, dtype: type[np.floating] = np.float64) -> np.ndarray:
    """Where each place of the result lies in the input, along one axis."""
    mode = at.attribute("coordinate_transformation_mode", "half_pixel")
    at.demand(mode in _PLACES, f"the coordinates are {mode}")
    return _PLACES[mode](np.arange(after, dtype=dtype), scale, before, after)


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
    """Linear interpolation along the last two axes, or of a constant part: a constant matrix for each."""
    at.demand(at.attribute("mode", "nearest") == "linear", "it is not linear")
    shape, out, scales = _interpolated(at)
    places = [_places_of(at, axis, scales[axis], shape[axis], out[axis]) for axis in _last_two(shape)]
    matrices = [_interpolation(it, shape[axis]) for it, axis in zip(places, _last_two(shape), strict=True)]
    if not _crops(at):
        return _times(at, matrices)
    # what lies outside of the image is no neighbour's
    inside = [(it >= 0) & (it <= shape[axis] - 1) for it, axis in zip(places, _last_two(shape), strict=True)]
    result = _times(at, [matrix * it[:, None] for matrix, it in zip(matrices, inside, strict=True)])
    beyond, whole = at.attribute("extrapolation_value", 0.0), np.multiply.outer(*inside)
    if beyond and not whole.all():
        return at.op("Add", result, at.constant(np.where(whole, 0, beyond).astype(np.float32)))
    return result


@pytorch("mode='bilinear' over height and width, then over depth, instead of F.interpolate(x, mode='trilinear')")
@rule(
    "Resize -> Reshape Resize",
    Exactness.DOMAIN,
    Bound(epsilons=64, of="the largest magnitude of the input"),
    domain=FINITE,
    rank=38,
    source=operator("Resize"),
)
def resize3d_resize2d(at: Site) -> str:
    """Linear interpolation along three axes: along the last two, then along the one before."""
    at.demand(at.attribute("mode", "nearest") == "linear", "it is not linear")
    at.demand(not _crops(at), "it crops")
    at.demand_dtype(TensorProto.FLOAT)
    shape, out, scales = _sizes(at)
    at.demand(len(shape) == 5 and shape[:2] == out[:2], "it does not change the last three of five axes")
    batch, channels, depth, height, width = shape
    fits = all(
        int(np.float32(size) * np.float32(scale)) == new for size, scale, new in zip(shape, scales, out, strict=True)
    )
    at.demand(fits, "a scale rounds otherwise")

    def resized(tensor: str, *factors: float) -> str:
        roi = at.node.input[1] or at.constant(np.zeros(0, np.float32))
        return at.like(tensor, roi, at.constant(np.array([1, 1, *factors], np.float32)))

    flat = reshape(at, at.input(0), [batch, channels * depth, height, width])
    deep = reshape(at, resized(flat, *scales[3:]), [batch, channels, depth, out[3] * out[4]])
    return reshape(at, resized(deep, scales[2], 1), out)


@pytorch("rows @ x @ columns with constant matrices instead of F.interpolate(x, mode='bicubic')")
@rule(
    "Resize -> MatMul",
    Exactness.DOMAIN,
    Bound(epsilons=64, of="the largest magnitude of the input"),
    domain=FINITE,
    rank=38,
    source=operator("Resize"),
)
def resize_cubic_matmul(at: Site) -> str:
    """Bicubic interpolation: a constant matrix for rows and one for columns."""
    at.demand(at.attribute("mode", "nearest") == "cubic", "it is not cubic")
    at.demand(not _crops(at), "it crops")
    shape, out, scales = _interpolated(at)
    sharpness, excluded = at.attribute("cubic_coeff_a", -0.75), bool(at.attribute("exclude_outside", 0))
    matrices = []
    for axis in _last_two(shape):
        places = _places(at, scales[axis], shape[axis], out[axis])
        matrix = _cubic(places, shape[axis], sharpness, excluded=excluded)
        inside = matrix.sum(axis=1, keepdims=True)
        at.demand(not excluded or bool((inside >= _LEAST_INSIDE).all()), "too much of a weight lies outside")
        matrices.append(matrix / inside if excluded else matrix)
    return _times(at, matrices)


def _interpolated(at: Site) -> tuple[tuple[int, ...], tuple[int, ...], list[float]]:
    """As `_sizes`, of floats of which no more than the last two axes change."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, out, scales = _sizes(at)
    at.demand(len(shape) > 2 and shape[:-2] == out[:-2], "other axes than the last two change")
    return shape, out, scales


def _last_two(shape: tuple[int, ...]) -> tuple[int, int]:
    return len(shape) - 2, len(shape) - 1


def _times(at: Site, matrices: list[np.ndarray]) -> str:
    """The input with each row and column combined; a matrix that changes nothing is left out."""
    rows, columns = (None if np.array_equal(it, np.eye(len(it))) else it.astype(np.float32) for it in matrices)
    tensor = at.input(0) if columns is None else at.op("MatMul", at.input(0), at.constant(columns.T))
    at.demand(rows is not None or columns is not None, "nothing changes")
    return tensor if rows is None else at.op("MatMul", at.constant(rows), tensor)


def _cubic(places: np.ndarray, size: int, sharpness: float, *, excluded: bool) -> np.ndarray:
    """A matrix that takes each place from its four neighbours; those outside are the outermost, or are `excluded`.

    R. Keys, Cubic convolution interpolation for digital image processing, 1981, with `sharpness` for a.
    """
    lower = np.floor(places).astype(int)
    matrix = np.zeros((len(places), size))
    for step in range(-1, 3):
        far = np.abs(places - (lower + step))
        near = ((sharpness + 2) * far - (sharpness + 3)) * far * far + 1
        weights = np.where(far <= 1, near, ((far - 5) * far + 8) * far * sharpness - 4 * sharpness)
        if excluded:
            weights = np.where((lower + step < 0) | (lower + step >= size), 0, weights)
        np.add.at(matrix, (np.arange(len(places)), np.clip(lower + step, 0, size - 1)), weights)
    return matrix


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


@pytorch("x[..., rows, :][..., columns] with constant indices instead of F.interpolate(x)")
@rule("Resize -> Gather", Exactness.EXACT, rank=38, source=operator("Resize"))
def resize_nearest_gather(at: Site) -> str:
    """Along each axis that changes, the pixels that are nearest, looked up by their places."""
    at.demand(at.attribute("mode", "nearest") == "nearest", "it interpolates")
    shape, out, scales = _sizes(at)
    at.demand(shape != out, "nothing changes")
    tensor = at.input(0)
    for axis, (before, after, scale) in enumerate(zip(shape, out, scales, strict=True)):
        if before != after:
            nearest = _nearest(at, scale, before, after)
            tensor = at.op("Gather", tensor, at.constant(nearest.astype(np.int64)), axis=axis)
    return tensor


def _nearest(at: Site, scale: float, before: int, after: int) -> np.ndarray:
    rounding = at.attribute("nearest_mode", "round_prefer_floor")
    at.demand(rounding in _ROUNDED, f"the nearest is {rounding}")
    # in float32, as onnxruntime: where two pixels are equally near, the last digit decides
    places = _places(at, float(np.float32(scale)), before, after, np.float32)
    nearest: np.ndarray = np.clip(_ROUNDED[rounding](places), 0, before - 1)
    return nearest


@pytorch("x[..., :, None, :, None].expand(...).reshape(...) instead of F.interpolate(x, scale_factor=2)")
@rule("Resize -> Reshape Expand", Exactness.EXACT, rank=38, source=operator("Resize"))
def resize_nearest_expand(at: Site) -> str:
    """Each pixel a whole number of times: an axis behind each, along which it is repeated."""
    at.demand(at.attribute("mode", "nearest") == "nearest", "it interpolates")
    shape, out, scales = _sizes(at)
    apart, grown = [], []
    for before, after, scale in zip(shape, out, scales, strict=True):
        at.demand(after % before == 0, "a pixel is not repeated a whole number of times")
        if after != before:
            even = _nearest(at, scale, before, after) == np.repeat(np.arange(before), after // before)
            at.demand(bool(even.all()), "pixels are repeated unevenly")
        apart += [before, 1] if after != before else [before]
        grown += [before, after // before] if after != before else [before]
    at.demand(prod(out) != prod(shape), "nothing grows")
    return reshape(at, at.op("Expand", reshape(at, at.input(0), apart), at.integers(grown)), out)
