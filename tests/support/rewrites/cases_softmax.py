"""Softmax and LogSoftmax, inside and just outside of the rules' conditions."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Instance, case, floats, node, opset, shape

DrawFn = st.DrawFn
Scale = Callable[[np.ndarray, int], np.ndarray]
EDGES = (0.0, -0.0, -np.inf, np.nan, 88.0, -88.0, 1e38, -1e38, 1e-45, 100.0)


def _softmax(
    draw: DrawFn, op: str, *, last: bool | None = None, edges: tuple[float, ...] = EDGES, scale: Scale | None = None
) -> Instance:
    x = floats(draw, shape(draw, 2), edges=edges)
    if last is False:
        axis, version = draw(st.integers(0, x.ndim - 2)), opset(draw, 13, 17, 21)
    else:
        axis, version = x.ndim - 1, opset(draw, 7, 11, 13, 17)
        if version >= 13 and last is None:
            axis = draw(st.integers(0, x.ndim - 1))
    named = axis - draw(st.sampled_from([0, x.ndim])) if version >= 11 else axis
    return node(op, x, axis=named, opset=version, scale=scale(x.astype(np.float64), axis) if scale else None)


def _of_share(x: np.ndarray, axis: int) -> np.ndarray:
    """The output, times the length of the axis."""
    with np.errstate(invalid="ignore"):
        grown = np.exp(x - x.max(axis, keepdims=True))
        return grown / grown.sum(axis, keepdims=True) * x.shape[axis]


def _of_largest(x: np.ndarray, axis: int) -> np.ndarray:
    """The largest input, the output and the length of the axis together."""
    largest = x.max(axis, keepdims=True)
    return np.abs(largest) + np.abs(x - largest) + x.shape[axis]


@case("softmax-last-axis", lambda draw: _softmax(draw, "Softmax", last=True))
def _(draw: DrawFn) -> Instance:
    return _softmax(draw, draw(st.sampled_from(["Softmax", "LogSoftmax"])), last=False)


def _several_axes(op: str):
    return lambda draw: node(op, floats(draw, shape(draw, 3)), axis=1, opset=draw(st.sampled_from([7, 11])))


@case("softmax-parts", _several_axes("Softmax"))
def _(draw: DrawFn) -> Instance:
    return _softmax(draw, "Softmax", scale=_of_share)


@case("logsoftmax-parts", _several_axes("LogSoftmax"))
def _(draw: DrawFn) -> Instance:
    return _softmax(draw, "LogSoftmax", edges=(0.0, -0.0, 88.0, -88.0, 1e4, -1e4), scale=_of_largest)
