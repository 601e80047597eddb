"""Sin and Cos within the stated range, multiples of a quarter turn and their neighbours included.

Tan, the hyperbolic functions and all inverses anywhere.
"""

from dataclasses import replace
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


def _anywhere(op: str, *turns: float):
    """All of float32, and the neighbours of where the function turns."""
    near = [np.nextafter(np.float32(turn), np.float32(side)) for turn in turns for side in (-9, 9)]
    edges = (*EDGES, *turns, *near, 3e38, -3e38, 1e-30, 1e-4, 1e4, 1e10, 88.5, 89.3, -89.3, 89.5)

    def drawn(draw: DrawFn) -> Instance:
        dims = shape(draw, 0)
        if draw(st.booleans()):
            return node(op, floats(draw, dims, edges=edges, spread=draw(st.sampled_from([0.3, 2, 50]))), opset=17)
        any_ = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, 2**32, dims, np.uint32)
        return node(op, np.asarray(any_, np.uint32).view(np.float32), opset=opset(draw, 9, 13, 24))

    return drawn


for _op, _rule, _turns in [
    ("Tan", "tan-sin", [float(np.float32(pi / 2)), 8.933833e10]),
    ("Asin", "asin-polynomial", [0.5, -0.5, 1.0, -1.0]),
    ("Acos", "acos-polynomial", [0.5, -0.5, 1.0, -1.0]),
    ("Atan", "atan-polynomial", [1.0, -1.0]),
    ("Cosh", "cosh-exp", [89.415985, -89.415985]),
    ("Sinh", "sinh-tanh", [89.415985, -89.415985, 2e-38]),
    ("Asinh", "asinh-log", [8192.0, -8192.0, 1.0]),
    ("Acosh", "acosh-log", [1.0, 2.0, 8192.0]),
    ("Atanh", "atanh-log", [1.0, -1.0, 1 / 3]),
]:
    case(_rule, _half(_op))(_anywhere(_op, *_turns))


@case("sinh-exp", _half("Sinh"))
def _(draw: DrawFn) -> Instance:
    drawn = _anywhere("Sinh", 89.415985, -89.415985)(draw)
    return replace(drawn, scale=1 + np.abs(np.sinh(drawn.feeds["x0"].astype(np.float64))))
