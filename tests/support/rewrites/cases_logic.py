"""Where, comparisons and logic, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.cases_elementary import broadcast
from support.rewrites.instances import (
    FINITE,
    Constant,
    Instance,
    anything,
    case,
    dynamic,
    floats,
    integers,
    node,
    opset,
    shape,
)

DrawFn = st.DrawFn


def _bools(draw: DrawFn, dims: tuple[int, ...]) -> np.ndarray:
    return integers(draw, dims, 0, 1).astype(np.bool_)


def _where_of_integers(draw: DrawFn) -> Instance:
    return node("Where", _bools(draw, (3,)), np.arange(3), np.arange(3))


@case("where-arithmetic", _where_of_integers)
def _(draw: DrawFn) -> Instance:
    left, right = broadcast(draw)
    mask = _bools(draw, shape(draw, len(right), len(right), 1) if draw(st.booleans()) else right)
    a, b = floats(draw, left, edges=FINITE), floats(draw, right, edges=FINITE)
    return node("Where", mask, a, b, opset=opset(draw, 9, 16))


def _where_of_two_numbers(draw: DrawFn) -> Instance:
    mask = _bools(draw, (3,))
    return node("Where", mask, Constant(np.float32([0])), Constant(np.float32([draw(st.sampled_from([-1e4, 1]))])))


@case("where-log", _where_of_two_numbers)
def _(draw: DrawFn) -> Instance:
    numbers = draw(st.sampled_from([np.float32([0]), np.float32([2.5, 0, -1e38]), np.float32(-3)]))
    branches = [Constant(numbers), Constant(np.float32(-np.inf))]
    mask = _bools(draw, (draw(st.integers(1, 4)), 3))
    return node("Where", mask, *draw(st.permutations(branches)), opset=opset(draw, 9, 16))


def _where_of_both(draw: DrawFn) -> Instance:
    x = anything(draw, (3,))
    return node("Where", Constant(np.array([True, draw(st.just(False)), True])), x, x)


@case("where-constant", _where_of_both)
def _(draw: DrawFn) -> Instance:
    left, right = broadcast(draw)
    x = floats(draw, left) if draw(st.booleans()) else integers(draw, left, -9, 9)
    y = np.zeros(right, x.dtype)
    mask = np.full(draw(st.sampled_from([(), (1,), right])), draw(st.booleans()))
    return node("Where", Constant(mask), x, y, opset=opset(draw, 9, 16))


@case("isnan-false", lambda draw: dynamic(node("IsNaN", floats(draw, shape(draw)))))
def _(draw: DrawFn) -> Instance:
    return node("IsNaN", floats(draw, shape(draw), edges=(*FINITE, np.inf)), opset=opset(draw, 9, 13, 20))


@case("isnan-equal", lambda draw: node("IsNaN", floats(draw, shape(draw), dtype=np.float16)))
def _(draw: DrawFn) -> Instance:
    kind = draw(st.sampled_from([np.float32, np.float64]))
    return node("IsNaN", floats(draw, shape(draw), dtype=kind), opset=opset(draw, 13, 20))


def _compared(draw: DrawFn, op: str, *versions: int) -> Instance:
    left, right = broadcast(draw)
    if draw(st.booleans()):
        a, b = (integers(draw, dims, -2, 2, draw(st.just(np.int64))) for dims in (left, right))
    else:
        a, b = (floats(draw, dims) for dims in (left, right))
    return node(op, a, b, opset=opset(draw, *versions))


def _unknown_type(op: str):
    def drawn(draw: DrawFn) -> Instance:
        instance = _compared(draw, op, 17)
        instance.model.graph.output[0].ClearField("type")
        return instance

    return drawn


def _equal(draw: DrawFn) -> Instance:
    return _compared(draw, "Equal", 13, 17)


@case("compare-or-equal", _equal)
def _(draw: DrawFn) -> Instance:
    return _compared(draw, draw(st.sampled_from(["GreaterOrEqual", "LessOrEqual"])), 12, 16)


@case("greater-less", _equal)
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        return _compared(draw, draw(st.sampled_from(["Greater", "Less"])), 9, 13, 17)
    return _compared(draw, draw(st.sampled_from(["GreaterOrEqual", "LessOrEqual"])), 12, 16)


def _logic(op: str):
    def drawn(draw: DrawFn) -> Instance:
        return node(op, *(_bools(draw, dims) for dims in broadcast(draw)), opset=opset(draw, 8, 13, 17))

    return drawn


case("and-mul", _logic("Or"))(_logic("And"))
case("or-max", _logic("And"))(_logic("Or"))
case("xor-sub", _logic("And"))(_logic("Xor"))
case("equal-int32", lambda draw: node("Equal", *(integers(draw, (3,), 0, 1) for _ in "ab"), opset=opset(draw)))(
    _logic("Equal")
)


@case("reduce-bool", lambda draw: node("ReduceMax", floats(draw, (2, 3)), keepdims=0, opset=20))
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    axes = draw(st.sampled_from([None, Constant(np.array([draw(st.integers(-len(dims), len(dims) - 1))]))]))
    keepdims = draw(st.integers(0, 1))
    op = draw(st.sampled_from(["ReduceMax", "ReduceMin"]))
    return node(op, _bools(draw, dims), axes, keepdims=keepdims, opset=opset(draw, 20, 21))


case("not-sub", _logic("And"))(lambda draw: node("Not", _bools(draw, shape(draw)), opset=opset(draw)))


def _triangle(draw: DrawFn, *, computed: bool = False) -> Instance:
    kind = draw(st.sampled_from([np.float32, np.float64, np.int64, np.bool_]))
    dims = shape(draw, 2)
    x = floats(draw, dims, dtype=kind) if np.dtype(kind).kind == "f" else integers(draw, dims, 0, 1).astype(kind)
    diagonal = integers(draw, (), -6, 6)
    given = [diagonal if computed else Constant(diagonal)] if computed or draw(st.booleans()) else []
    chosen = {"upper": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
    return node("Trilu", x, *given, opset=opset(draw, 14, 17, 21), **chosen)


@case("trilu-where", lambda draw: _triangle(draw, computed=True))
def _(draw: DrawFn) -> Instance:
    return _triangle(draw)


@case("isinf-equal", lambda draw: node("IsInf", floats(draw, (3,)), detect_positive=0, detect_negative=0))
def _(draw: DrawFn) -> Instance:
    positive, negative = draw(st.sampled_from([(1, 1), (1, 0), (0, 1)]))
    x = floats(draw, shape(draw, 0))
    return node("IsInf", x, opset=opset(draw, 13, 20), detect_positive=positive, detect_negative=negative)


def _onehot(draw: DrawFn, kind: type) -> Instance:
    depth, dims = draw(st.integers(1, 6)), shape(draw, 1, 3)
    places: np.ndarray = integers(draw, dims, -2 * depth, 2 * depth).astype(kind)
    values = draw(st.sampled_from([np.float32([0, 1]), np.float32([-2, np.nan]), np.array([3, 7], np.int64)]))
    axis = draw(st.integers(-1 - len(dims), len(dims)))
    count = Constant(np.array([depth]) if draw(st.booleans()) else np.array(depth))
    return node("OneHot", places, count, Constant(values), opset=opset(draw, 11, 17), axis=axis)


@case("onehot-equal", lambda draw: _onehot(draw, np.float32))
def _(draw: DrawFn) -> Instance:
    return _onehot(draw, np.int64)


def _tensorscatter(draw: DrawFn, rows: int) -> Instance:
    dims = list(shape(draw, 3))
    axis = draw(st.integers(1, len(dims) - 1))
    dims[axis] += rows
    cache = floats(draw, dims)
    new = floats(draw, [*dims[:axis], rows, *dims[axis + 1 :]])
    places = integers(draw, (dims[0],), 0, dims[axis] - rows)
    named = (
        {"axis": axis - draw(st.sampled_from([0, len(dims)]))} if axis != len(dims) - 2 or draw(st.booleans()) else {}
    )
    return node("TensorScatter", cache, new, places, opset=24, **named)


@case("tensorscatter-where", lambda draw: _tensorscatter(draw, 2))
def _(draw: DrawFn) -> Instance:
    return _tensorscatter(draw, 1)
