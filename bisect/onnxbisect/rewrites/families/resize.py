"""Resize by scales, by matrices and by repetition."""

from collections.abc import Callable
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import FINITE, Bound
from onnxbisect.rewrites.forms import reshape
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import operator, tidl

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
    "Resize -> MatMul",
    Exactness.DOMAIN,
    Bound(epsilons=64, of="the largest magnitude of the input"),
    domain=FINITE,
    rank=38,
    source=operator("Resize"),
)
def resize_linear_matmul(at: Site) -> str:
    """Bilinear interpolation of an image: a constant matrix for its rows and one for its columns."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(at.attribute("mode", "nearest") == "linear", "it is not linear")
    shape, out, scales = _sizes(at)
    at.demand(len(shape) == 4 and shape[:2] == out[:2], "other axes than height and width change")
    rows, columns = (_interpolation(_places(at, scales[axis], shape[axis], out[axis]), shape[axis]) for axis in (2, 3))
    return at.op("MatMul", at.constant(rows), at.op("MatMul", at.input(0), at.constant(columns.T)))


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
