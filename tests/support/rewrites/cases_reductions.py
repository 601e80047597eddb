"""Reductions, inside and just outside of the rules' conditions."""

from collections.abc import Callable
from math import prod

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, case, floats, node, opset, shape
from support.rewrites.measured import outputs_of

DrawFn = st.DrawFn
#: Squares and sums of these neither overflow nor vanish.
TAME = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e9, -1e9, 1e-9)
FINITE = (0.0, -0.0, 1.0, -1.0, 1e9, -1e9, 1e-9)
OPSETS = (7, 11, 13, 17, 18, 21)


def reduction(
    op: str, x: np.ndarray, axes: list[int] | None, *, keepdims: int, version: int, scale: np.ndarray | None = None
) -> Instance:
    """The axes as the version of the operator has them."""
    if version < (13 if op == "ReduceSum" else 18):
        given = {} if axes is None else {"axes": axes}
        return node(op, x, opset=version, keepdims=keepdims, scale=scale, **given)
    return node(
        op, x, *([] if axes is None else [Constant(np.array(axes))]), opset=version, keepdims=keepdims, scale=scale
    )


def _reduce(
    draw: DrawFn,
    op: str,
    term: Callable[[np.ndarray], np.ndarray] = np.abs,
    *,
    least: int = 1,
    axes: list[int] | None = None,
    rank: int = 1,
    most: int = 4,
    finite: bool = False,
    keepdims: int | None = None,
    opsets: tuple[int, ...] = OPSETS,
    edges: tuple[float, ...] = TAME,
) -> Instance:
    x = floats(draw, shape(draw, rank, most), edges=FINITE if finite else edges)
    if axes is None and (least > 1 or draw(st.booleans())):
        count = draw(st.integers(least, x.ndim))
        axes = [axis - draw(st.sampled_from([0, x.ndim])) for axis in draw(st.permutations(range(x.ndim)))[:count]]
    keep = draw(st.integers(0, 1)) if keepdims is None else keepdims
    return reduction(op, x, axes, keepdims=keep, version=opset(draw, *opsets), scale=of_terms(x, axes, keep, term))


def of_terms(
    x: np.ndarray, axes: list[int] | None, keepdims: int, term: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The sum of the terms' magnitudes, times their number."""
    over = tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)
    with np.errstate(invalid="ignore"):
        total = term(x.astype(np.float64)).sum(axis=over, keepdims=bool(keepdims))
    return total * np.prod([x.shape[axis] for axis in over])


def _half(op: str) -> Callable[[DrawFn], Instance]:
    return lambda draw: node(op, floats(draw, (3, 4), dtype=np.float16), opset=17)


@case("reducel2-parts", _half("ReduceL2"))
def _(draw: DrawFn) -> Instance:
    instance = _reduce(draw, "ReduceL2", np.square)
    return Instance(instance.model, instance.feeds, np.sqrt(instance.scale) * np.sqrt(instance.feeds["x0"].size))


@case("reducel1-parts", _half("ReduceL1"))
def _(draw: DrawFn) -> Instance:
    return _reduce(draw, "ReduceL1")


@case("reducesumsquare-parts", _half("ReduceSumSquare"))
def _(draw: DrawFn) -> Instance:
    return _reduce(draw, "ReduceSumSquare", np.square)


@case("reducelogsumexp-parts", _half("ReduceLogSumExp"))
def _(draw: DrawFn) -> Instance:
    instance = _reduce(draw, "ReduceLogSumExp", finite=True)
    x = instance.feeds["x0"]
    return Instance(instance.model, instance.feeds, np.abs(x).max() + x.size)


@case("reducelogsumexp-where", _half("ReduceLogSumExp"))
def _(draw: DrawFn) -> Instance:
    edges = draw(st.sampled_from([(*FINITE, np.inf, -np.inf), (0.0, 1.0, np.nan)]))
    instance = _reduce(draw, "ReduceLogSumExp", opsets=OPSETS[1:], edges=edges)
    x = instance.feeds["x0"]
    return Instance(instance.model, instance.feeds, np.abs(x[np.isfinite(x)]).max(initial=0) + x.size)


@case("reducelogsum-parts", _half("ReduceLogSum"))
def _(draw: DrawFn) -> Instance:
    instance = _reduce(draw, "ReduceLogSum")
    (output,) = outputs_of(instance.model, instance.feeds)
    total = np.abs(np.exp(output.astype(np.float64)))
    relative = instance.scale / total
    # terms that cancel to within their rounding have no logarithm to speak of: their sum may as well be negative
    assume(not (np.isfinite(relative) & (relative * np.finfo(np.float32).eps > 0.1)).any())
    return Instance(instance.model, instance.feeds, relative + np.abs(output))


@case("reducemin-max", _half("ReduceMin"))
def _(draw: DrawFn) -> Instance:
    return _reduce(draw, "ReduceMin")


def _too_many_factors(draw: DrawFn) -> Instance:
    return reduction("ReduceProd", floats(draw, (9, 4)), [0, 1], keepdims=1, version=13)


@case("reduceprod-slices", _too_many_factors)
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw), spread=1, edges=(0.0, -1.0, 1.0, np.inf, np.nan))
    axes = [draw(st.integers(-x.ndim, x.ndim - 1))]
    if draw(st.booleans()):
        axes = list(range(min(x.ndim, 3)))
        assume(prod(x.shape[:3]) <= 32)
    return reduction("ReduceProd", x, axes, keepdims=draw(st.integers(0, 1)), version=opset(draw, *OPSETS))


def _first_axis(op: str) -> Callable[[DrawFn], Instance]:
    return lambda draw: reduction(op, floats(draw, (3, 4)), [0], keepdims=draw(st.integers(0, 1)), version=13)


def _of_parts(draw: DrawFn, op: str, **drawn: int) -> Instance:
    return _reduce(draw, op, **drawn)


@case("reducesum-matmul", _first_axis("ReduceSum"))
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw), edges=FINITE)
    axes = list(range(draw(st.integers(0, x.ndim - 1)), x.ndim))
    op, keepdims = draw(st.sampled_from(["ReduceSum", "ReduceMean"])), draw(st.integers(0, 1))
    return reduction(
        op, x, axes, keepdims=keepdims, version=opset(draw, *OPSETS), scale=of_terms(x, axes, keepdims, np.abs)
    )


@case("reducemean-sum", _half("ReduceMean"))
def _(draw: DrawFn) -> Instance:
    return _reduce(draw, "ReduceMean")


@case("reducesum-mean", _half("ReduceSum"))
def _(draw: DrawFn) -> Instance:
    return _reduce(draw, "ReduceSum")


@case(
    "reducemean-pool", lambda draw: reduction("ReduceMean", floats(draw, (2, 3, 4, 5)), [1, 2], keepdims=1, version=13)
)
def _(draw: DrawFn) -> Instance:
    axes = draw(st.sampled_from([[2, 3], [-1, -2], [3, 2]]))
    return _reduce(draw, "ReduceMean", axes=axes, rank=4)


def _pool_of_doubles(draw: DrawFn) -> Instance:
    return node("GlobalAveragePool", floats(draw, (2, 3, 4), dtype=np.float64))


@case("globalaveragepool-mean", _pool_of_doubles)
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw, 3), edges=TAME)
    return node("GlobalAveragePool", x, opset=opset(draw), scale=of_terms(x, list(range(2, x.ndim)), 1, np.abs))


@case("globalmaxpool-max", lambda draw: node("GlobalMaxPool", floats(draw, (2, 3, 4), dtype=np.float64)))
def _(draw: DrawFn) -> Instance:
    return node("GlobalMaxPool", floats(draw, shape(draw, 3), edges=(*FINITE, np.inf)), opset=opset(draw))


@case("reduce-axes", _first_axis("ReduceMax"))
def _(draw: DrawFn) -> Instance:
    op = draw(st.sampled_from(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"]))
    return _reduce(draw, op, least=2, rank=2, finite=True)


def _keeps(draw: DrawFn) -> Instance:
    return _reduce(draw, "ReduceMax", keepdims=1)


@case("reduce-keepdims", _keeps)
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        x = floats(draw, shape(draw), edges=FINITE)
        axis = draw(st.integers(-x.ndim, x.ndim - 1))
        return node(
            draw(st.sampled_from(["ArgMax", "ArgMin"])), x, axis=axis, keepdims=0, opset=opset(draw, 11, 13, 17)
        )
    kinds = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    return _reduce(draw, f"Reduce{draw(st.sampled_from(kinds))}", keepdims=0, finite=True)


def _cumprod(draw: DrawFn, *, stored: bool = True) -> Instance:
    x = floats(draw, shape(draw), spread=1, edges=(0.0, -0.0, -1.0, 1.0, np.inf, np.nan))
    axis = np.array(draw(st.integers(-x.ndim, x.ndim - 1)))
    flags = {name: draw(st.integers(0, 1)) for name in ("exclusive", "reverse") if draw(st.booleans())}
    return node("CumProd", x, Constant(axis) if stored else axis, opset=26, **flags)


@case("cumprod-slices", lambda draw: _cumprod(draw, stored=False))
def _(draw: DrawFn) -> Instance:
    return _cumprod(draw)


def _globallppool(draw: DrawFn, power: int) -> Instance:
    x = floats(draw, shape(draw, 3), edges=TAME)
    axes = list(range(2, x.ndim))
    terms = of_terms(x, axes, 1, np.abs if power == 1 else np.square)
    scale = terms if power == 1 else np.sqrt(terms) * np.sqrt(x.size)
    return node("GlobalLpPool", x, opset=opset(draw, 7, 13, 21), p=power, scale=scale)


@case("globallppool-reduce", lambda draw: _globallppool(draw, 3))
def _(draw: DrawFn) -> Instance:
    return _globallppool(draw, draw(st.integers(1, 2)))


def _hardmax(draw: DrawFn, *, several: bool = False) -> Instance:
    x = floats(draw, shape(draw, 3 if several else 1), edges=(0.0, -0.0, 1.0, 1.0, -1.0, np.inf, -np.inf))
    version = draw(st.sampled_from([7, 11] if several else [13, 17]))
    axis = 1 if several else draw(st.integers(-x.ndim, x.ndim - 1))
    return node("Hardmax", x, axis=axis, opset=version)


@case("hardmax-argmax", lambda draw: _hardmax(draw, several=True))
def _(draw: DrawFn) -> Instance:
    return _hardmax(draw)
