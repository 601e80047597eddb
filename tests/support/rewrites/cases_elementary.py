"""Elementwise arithmetic, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import FINITE, Constant, Instance, case, floats, integers, node, opset, shape

DrawFn = st.DrawFn
ALL_FLOATS = (np.float32, np.float16, np.float64)


def _unary(draw: DrawFn, op: str, *dtypes: type, opsets: tuple[int, ...] = (), **drawn: object) -> Instance:
    dtype = draw(st.sampled_from(dtypes or (np.float32,)))
    return node(op, floats(draw, shape(draw, 0), dtype=dtype, **drawn), opset=opset(draw, *opsets))


def _of_integers(op: str, version: int = 13):
    def drawn(draw: DrawFn) -> Instance:
        return node(op, integers(draw, shape(draw), -9, 9, np.int32), opset=version)

    return drawn


def broadcast(draw: DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of which each is broadcast to the other."""
    full = shape(draw)
    left = tuple(1 if draw(st.booleans()) else dim for dim in full)
    right = tuple(1 if draw(st.booleans()) else dim for dim in full)
    return left[draw(st.integers(0, len(full))) :], right


@case("abs-relu", _of_integers("Abs"))
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Abs", *ALL_FLOATS)


@case("abs-max", _of_integers("Abs"))
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Abs", *ALL_FLOATS, opsets=(8, 11, 13, 17, 24))


def _neg_of_bytes(draw: DrawFn) -> Instance:
    return node("Neg", integers(draw, shape(draw), -9, 9, np.int8), opset=13)


@case("neg-mul", _neg_of_bytes)
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        return node("Neg", integers(draw, shape(draw), -(2**31), 2**31 - 1, np.int32), opset=13)
    return _unary(draw, "Neg", *ALL_FLOATS)


def _sub_of_bytes(draw: DrawFn) -> Instance:
    x = integers(draw, (3,), 0, 9, np.uint8)
    return node("Sub", x, x + 1, opset=14)


@case("sub-add", _sub_of_bytes)
def _(draw: DrawFn) -> Instance:
    left, right = broadcast(draw)
    if draw(st.booleans()):
        a, b = (integers(draw, dims, -(2**63), 2**63 - 1) for dims in (left, right))
    else:
        dtype = draw(st.sampled_from(ALL_FLOATS))
        a, b = (floats(draw, dims, dtype=dtype) for dims in (left, right))
    return node("Sub", a, Constant(b) if draw(st.booleans()) else b, opset=opset(draw))


def _half_reciprocal(draw: DrawFn) -> Instance:
    return _unary(draw, "Reciprocal", np.float16)


@case("reciprocal-div", _half_reciprocal)
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Reciprocal", np.float32, np.float64)


def _div_by_input(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw))
    return draw(st.sampled_from([node("Div", x, x), node("Div", x, Constant(np.zeros((), np.float32)))]))


@case("div-mul", _div_by_input)
def _(draw: DrawFn) -> Instance:
    left, right = broadcast(draw)
    divisor = floats(draw, right, edges=(1e-20, 1e20, 3.0, -7.0), low=0.1, high=50.0)
    edges = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1.0)
    return node("Div", floats(draw, left, edges=edges), Constant(divisor), opset=opset(draw))


@case("div-reciprocal", lambda draw: node("Div", floats(draw, (2, 3)), Constant(np.array(3, np.float32))))
def _(draw: DrawFn) -> Instance:
    left, right = broadcast(draw)
    divisor = floats(draw, right, edges=(1e-20, 1e20, 3.0, -7.0), low=0.1, high=50.0)
    edges = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1.0)
    return node("Div", floats(draw, left, edges=edges), divisor, opset=opset(draw))


@case("sign-compare", _of_integers("Sign"))
def _(draw: DrawFn) -> Instance:
    edges = (*FINITE, np.inf, -np.inf)
    return _unary(draw, "Sign", np.float32, np.float64, opsets=(9, 13, 17), edges=edges)


@case("sign-where", _of_integers("Sign"))
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Sign", np.float32, np.float64, opsets=(11, 13, 17))


def _one_input(op: str):
    return lambda draw: node(op, floats(draw, shape(draw)), opset=opset(draw))


def _several(draw: DrawFn, op: str, least: int, edges: tuple[float, ...] | None = None) -> Instance:
    dims = shape(draw)
    count = draw(st.integers(least, 5))
    some = [floats(draw, dims, **({} if edges is None else {"edges": edges})) for _ in range(count)]
    return node(op, *some, opset=opset(draw, 8, 13, 17))


@case("sum-add", _one_input("Sum"))
def _(draw: DrawFn) -> Instance:
    return _several(draw, "Sum", 2)


@case("mean-add", _one_input("Mean"))
def _(draw: DrawFn) -> Instance:
    return _several(draw, "Mean", 2)


def _max_of_two(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw))
    return node(draw(st.sampled_from(["Max", "Min"])), x, -x)


@case("max-pairs", _max_of_two)
def _(draw: DrawFn) -> Instance:
    return _several(draw, draw(st.sampled_from(["Max", "Min"])), 3)


@case("max-min", _one_input("Min"))
def _(draw: DrawFn) -> Instance:
    op = draw(st.sampled_from(["Max", "Min"]))
    if draw(st.booleans()):
        return _several(draw, op, 2)
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    low, high = (int(end) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    a, b = (integers(draw, dims, low, high, dtype) for dims in broadcast(draw))
    return node(op, a, b, opset=opset(draw, 12, 13, 17))


def _three_inputs(op: str):
    def drawn(draw: DrawFn) -> Instance:
        x = floats(draw, shape(draw))
        return node(op, x, x, x)

    return drawn


def _two(draw: DrawFn, op: str) -> Instance:
    edges = (0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 1e36, -1e36, 9.9e36)
    a, b = (floats(draw, dims, edges=edges) for dims in broadcast(draw))
    b = a.copy() if draw(st.booleans()) else b
    return node(op, a, b, opset=opset(draw, 8, 13, 17), scale=np.maximum(np.abs(a), np.abs(b)))


@case("max-relu", _three_inputs("Max"))
def _(draw: DrawFn) -> Instance:
    return _two(draw, "Max")


@case("min-relu", _three_inputs("Min"))
def _(draw: DrawFn) -> Instance:
    return _two(draw, "Min")


def _clip(draw: DrawFn, low: float | None, high: float | None, dtype: type = np.float32) -> Instance:
    x = floats(draw, shape(draw, 0), dtype=dtype)
    scale = abs(low or 0) + abs(high or 0)
    version = opset(draw, 8, 11, 13, 17) if dtype == np.float32 else opset(draw, 12, 13, 17)
    if version < 11:
        limits = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
        return node("Clip", x, opset=version, scale=scale, **limits)
    bounds = [None if value is None else Constant(np.array(value, dtype)) for value in (low, high)]
    return node("Clip", x, *bounds, opset=version, scale=scale)


def _clip_of_computed_limits(draw: DrawFn) -> Instance:
    return node("Clip", floats(draw, (3,)), np.float32(-1).reshape(()), np.float32(1).reshape(()))


def _clip_at_zero(draw: DrawFn) -> Instance:
    return _clip(draw, 0.0, draw(st.sampled_from([None, 6.0])))


@case("clip-max-min", _clip_at_zero)
def _(draw: DrawFn) -> Instance:
    low = draw(st.sampled_from([None, -1.5, -1e-3, 2.0]))
    return _clip(draw, low, draw(st.sampled_from([6.0, 2.0, 1e38])), draw(st.sampled_from([np.float32, np.float64])))


def _clip_of_integers(draw: DrawFn) -> Instance:
    return node("Clip", np.array([-3, 0, 5]), Constant(np.array(0)), Constant(np.array(4)), opset=13)


@case("clip-max-min-any", _clip_of_integers)
def _(draw: DrawFn) -> Instance:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    low, high = (draw(st.sampled_from([None, -np.inf, -1.5, -0.0, 0.0, 6.0, np.inf])) for _ in range(2))
    ordered = (-np.inf if low is None else low) <= (np.inf if high is None else high)
    if draw(st.booleans()) and ordered and low != np.inf and high != -np.inf:  # attributes that onnxruntime takes
        return _clip(draw, low, high, dtype)
    limits = [None if value is None else np.array(value, dtype) for value in (low, high)]
    return node("Clip", floats(draw, shape(draw, 0), dtype=dtype), *limits, opset=opset(draw, 12, 13, 17))


@case("clip-relu", _clip_of_computed_limits)
def _(draw: DrawFn) -> Instance:
    low = draw(st.floats(-100, 100, width=32))
    return _clip(draw, low, low + draw(st.floats(0, 100, width=32)))


def _pow(draw: DrawFn, exponents: st.SearchStrategy, **drawn: object) -> Instance:
    exponent = np.full(draw(st.sampled_from([(), (1,)])), draw(exponents))
    kind = draw(st.sampled_from([np.float32, np.int64])) if exponent.ravel()[0] == int(exponent.ravel()[0]) else None
    kind = kind or np.float32
    version = opset(draw, 12, 13, 17, 21) if kind == np.int64 else opset(draw)
    return node("Pow", floats(draw, shape(draw), **drawn), Constant(exponent.astype(kind)), opset=version)


def _other_power(draw: DrawFn) -> Instance:
    return _pow(draw, st.sampled_from([0, 1, -1, 9, 2.5, -3]))


@case("pow-mul", _other_power)
def _(draw: DrawFn) -> Instance:
    return _pow(draw, st.integers(2, 8))


NOT_NEGATIVE = (0.0, np.inf, np.nan, 1e-45, 1e38, 0.5, 1.0)


@case("pow-sqrt", _other_power)
def _(draw: DrawFn) -> Instance:
    return _pow(draw, st.just(0.5), low=0.0, high=9.0, edges=NOT_NEGATIVE)


@case("pow-reciprocal-sqrt", _other_power)
def _(draw: DrawFn) -> Instance:
    return _pow(draw, st.just(-0.5), low=0.0, high=9.0, edges=NOT_NEGATIVE)


@case("sqrt-pow", lambda draw: _unary(draw, "Sqrt", np.float16))
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Sqrt", low=0.0, high=9.0, edges=NOT_NEGATIVE)


TIES = (0.5, 1.5, 2.5, -0.5, -1.5, 8388609.0, 4194304.5, 0.49999997, -0.49999997, np.inf, -np.inf, np.nan, -0.0, 1e-45)


@case("ceil-floor", lambda draw: _unary(draw, "Ceil", np.float16))
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Ceil", np.float32, np.float64, edges=TIES)


@case("floor-round", lambda draw: _unary(draw, "Floor", np.float16, opsets=(11, 13)))
def _(draw: DrawFn) -> Instance:
    return _unary(draw, "Floor", np.float32, np.float64, opsets=(11, 13, 17, 24), edges=TIES)


@case("round-floor", lambda draw: _unary(draw, "Round", np.float16, opsets=(11, 13)))
def _(draw: DrawFn) -> Instance:
    edges = (*TIES, 3.5, -2.5, 0.75, -0.75, 16777216.0, -8388607.0, 2097151.5, -2097150.5)
    return _unary(draw, "Round", np.float32, np.float64, opsets=(11, 13, 17, 24), edges=edges)


def _mod_by_negative(draw: DrawFn) -> Instance:
    return node("Mod", integers(draw, (5,), -9, 9), Constant(integers(draw, (), -9, 0)))


@case("mod-div", _mod_by_negative)
def _(draw: DrawFn) -> Instance:
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    info = np.iinfo(dtype)
    x = integers(draw, shape(draw, 0), *draw(st.sampled_from([(-50, 50), (int(info.min), int(info.max))])), dtype)
    divisor = integers(draw, (), 1, draw(st.sampled_from([7, 2**30 - 2])), dtype)
    return node("Mod", x, Constant(divisor), opset=draw(st.sampled_from([10, 13, 17])))


def _fmod(draw: DrawFn) -> Instance:
    return node("Mod", integers(draw, (3,), -9, 9), integers(draw, (3,), 1, 9), fmod=1)


@case("mod-div-any", _fmod)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    divisor = integers(draw, dims, 1, 9, dtype) * draw(st.sampled_from([1, -1]))
    return node("Mod", integers(draw, dims, -(2**30) + 1, 2**30 - 1, dtype), divisor.astype(dtype))


def _dropout_with_mask(draw: DrawFn) -> Instance:
    return node("Dropout", floats(draw, (3,)), outputs=2, opset=draw(st.sampled_from([7, 10, 11])))


@case("dropout-identity", _dropout_with_mask)
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        return node("Dropout", floats(draw, shape(draw)), outputs=2, opset=draw(st.sampled_from([12, 13, 17])))
    return _unary(draw, "Dropout", np.float32, np.float16)


def _fmod_by(draw: DrawFn, *divisors: float) -> Instance:
    size = draw(st.sampled_from([1.0, 100.0, 1e9]))
    x = floats(draw, shape(draw)) * np.float32(size)
    divisor = Constant(np.array(draw(st.sampled_from(divisors)), np.float32))
    return node("Mod", x, divisor, fmod=1, opset=opset(draw, 10, 13, 17))


@case("mod-fmod", lambda draw: _fmod_by(draw, 3.0, 0.5, 6.2831855))
def _(draw: DrawFn) -> Instance:
    return _fmod_by(draw, 1.0, -1.0, 2.0, 4096.0, 2.0**40)


@case("scaler-arithmetic", lambda draw: node("Normalizer", floats(draw, (2, 3)), domain="ai.onnx.ml"))
def _(draw: DrawFn) -> Instance:
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from([np.float32, np.int64]))
    drawn = integers(draw, (rows, columns), -99, 99, np.int64) if kind == np.int64 else floats(draw, (rows, columns))
    width = draw(st.sampled_from([1, columns]))
    named = {name: floats(draw, (width,), edges=FINITE).tolist() for name in ("offset", "scale")}
    return node("Scaler", drawn.astype(kind), domain="ai.onnx.ml", named=named)
