"""Sin and Cos within the stated range, multiples of a quarter turn and their neighbours included."""

from math import pi

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import EDGES, Instance, case, floats, node, opset, shape

DrawFn = st.DrawFn
QUARTERS = [float(np.float32(pi / 2 * number)) for number in range(-600, 601, 7)]
NEAR_QUARTERS = tuple(np.nextafter(np.float32(value), np.float32(9999)) for value in QUARTERS) + tuple(QUARTERS)


def _half(op: str):
    return lambda draw: node(op, floats(draw, shape(draw), dtype=np.float16))


def _any(draw: DrawFn, op: str) -> Instance:
    x = floats(draw, shape(draw, 0), edges=(*EDGES, 100.0, 8192.0), spread=10)
    with np.errstate(invalid="ignore"):
        return node(op, x, opset=opset(draw), scale=np.abs(x) + 2)


@case("cos-sin", _half("Cos"))
def _(draw: DrawFn) -> Instance:
    return _any(draw, "Cos")


@case("sin-cos", _half("Sin"))
def _(draw: DrawFn) -> Instance:
    return _any(draw, "Sin")


def _within(draw: DrawFn, op: str, limit: float) -> Instance:
    reach = draw(st.sampled_from([limit, 10.0, 1.0]))
    edges = tuple(value for value in (*NEAR_QUARTERS, 1e-45, -0.0, limit, -limit) if abs(value) <= limit)
    x = floats(draw, shape(draw, 0), low=-min(reach, limit), high=min(reach, limit), edges=edges)
    return node(op, np.clip(x, -np.float32(limit), np.float32(limit)), opset=opset(draw))


@case("sin-polynomial", _half("Sin"))
def _(draw: DrawFn) -> Instance:
    return _within(draw, "Sin", 1000.0)


@case("cos-polynomial", _half("Cos"))
def _(draw: DrawFn) -> Instance:
    return _within(draw, "Cos", 1000.0)


@case("sin-half-turn", _half("Sin"))
def _(draw: DrawFn) -> Instance:
    return _within(draw, "Sin", float(np.float32(pi)))


@case("sin-folding", _half("Sin"))
def _(draw: DrawFn) -> Instance:
    return _within(draw, "Sin", float(np.float32(63 * pi / 2)))


@case("cos-folding", _half("Cos"))
def _(draw: DrawFn) -> Instance:
    return _within(draw, "Cos", float(np.float32(21 * pi)))
