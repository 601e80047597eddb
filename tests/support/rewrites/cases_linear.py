"""Products and running sums, inside and just outside of the rules' conditions."""

from math import prod

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, case, floats, integers, node, opset, shape

DrawFn = st.DrawFn
EDGES = (0.0, -0.0, 1.0, -1.0, 1e9, -1e9, 1e-9)
WITH_INFINITY = (*EDGES, np.inf, np.nan)


def of_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of the products' magnitudes, times their number plus 2."""
    return np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * (a.shape[-1] + 2)


@case("gemm-matmul", lambda draw: node("Gemm", *[floats(draw, (3, 3), dtype=np.float64)] * 3))
def _(draw: DrawFn) -> Instance:
    rows, depth, columns = (draw(st.integers(1, 6)) for _ in range(3))
    a, b = floats(draw, (rows, depth), edges=WITH_INFINITY), floats(draw, (depth, columns), edges=EDGES)
    c = floats(draw, draw(st.sampled_from([(), (columns,), (rows, 1), (rows, columns)])), edges=EDGES)
    alpha, beta = draw(st.sampled_from([1.0, 0.5, -2.0])), draw(st.sampled_from([1.0, 0.25, 0.0]))
    turned = {"transA": draw(st.integers(0, 1)), "transB": draw(st.integers(0, 1))}
    scale = of_products(a, b) * abs(alpha) + np.abs(c) * abs(beta) * (depth + 2)
    a, b = (np.ascontiguousarray(it.T) if turn else it for it, turn in zip((a, b), turned.values(), strict=True))
    stored = [Constant(it) if draw(st.booleans()) else it for it in (b, c)]
    version = opset(draw, 7, 9, 11, 13, 17)
    if version >= 11 and draw(st.booleans()):
        return node("Gemm", a, stored[0], opset=version, alpha=alpha, beta=beta, scale=scale, **turned)
    return node("Gemm", a, *stored, opset=version, alpha=alpha, beta=beta, scale=scale, **turned)


EQUATIONS = (
    "bhid,bhjd->bhij", "bhij,bhjd->bhid", "ij,jk->ik", "bchw,ck->bkhw", "i,j->ij", "bi,bi->b", "abc,cab->bc",
    "bijk,bk->bij", "nqc,nchw->nqhw", "i,i->", "...e,ef->...f", "...ij,...jk->...ik", "b...i,ij->j...b",
    "ij,jk", "ij,jk->i", "bnd,bmd,bme->bne", "ij,jk,kl->il", "i,j,k->kji", "a...,a...->...", "i,ij,j",
)  # fmt: skip
REFUSED_EQUATIONS = ("ii,ij->j", "ij,jj->i", "ij->ji")
ELLIPSIS = "yz"


def _einsum(draw: DrawFn, equation: str) -> Instance:
    size = {letter: draw(st.integers(1, 4)) for letter in "abcdefghijklmnopqrstuvwxyz"}
    hidden = ELLIPSIS[: draw(st.integers(0, 2))]
    terms = [term.replace("...", hidden) for term in equation.partition("->")[0].split(",")]
    operands = [floats(draw, [size[letter] for letter in term], edges=EDGES) for term in terms]
    magnitudes = np.einsum(equation, *[np.abs(operand.astype(np.float64)) for operand in operands])
    products = prod(size[letter] for letter in {*"".join(terms)})
    stored = draw(st.integers(-1, len(operands) - 1))
    given = [Constant(it) if number == stored else it for number, it in enumerate(operands)]
    return node("Einsum", *given, equation=equation, opset=opset(draw, 12, 17), scale=magnitudes * (products + 2))


def _of_one(draw: DrawFn, *equations: str) -> Instance:
    return _einsum(draw, draw(st.sampled_from(equations)))


@case("einsum-transpose", lambda draw: _of_one(draw, "ij->i", "ij,jk->ik"))
def _(draw: DrawFn) -> Instance:
    return _of_one(draw, "bnf->bfn", "ij->ji", "i->i", "...ij->...ji", "ba", "i...->...i")


@case("einsum-sum", lambda draw: _of_one(draw, "bnf->bfn", "ij,jk->ik"))
def _(draw: DrawFn) -> Instance:
    return _of_one(draw, "ij->i", "ij->", "bnf->fb", "...ij->...j", "i->")


@case("einsum-matmul", lambda draw: _einsum_on_small(draw, draw(st.sampled_from(REFUSED_EQUATIONS))))
def _(draw: DrawFn) -> Instance:
    return _einsum(draw, draw(st.sampled_from(EQUATIONS)))


def _einsum_on_small(draw: DrawFn, equation: str) -> Instance:
    """All axes of length 2, so that a repeated letter fits."""
    terms = equation.partition("->")[0].split(",")
    return node("Einsum", *[floats(draw, [2] * len(term)) for term in terms], equation=equation)


def _matmul(draw: DrawFn, *, depth: int, stored: bool) -> Instance:
    columns = draw(st.integers(1, 6))
    a = floats(draw, (*shape(draw, 1, 3), depth), edges=WITH_INFINITY)
    b = floats(draw, (depth, columns), edges=EDGES)
    return node("MatMul", a, Constant(b) if stored else b, opset=opset(draw), scale=of_products(a, b))


@case("matmul-conv", lambda draw: _matmul(draw, depth=3, stored=False))
def _(draw: DrawFn) -> Instance:
    return _matmul(draw, depth=draw(st.integers(1, 40)), stored=True)


@case("matmul-sum", lambda draw: _matmul(draw, depth=17, stored=draw(st.booleans())))
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        return _matmul(draw, depth=draw(st.integers(1, 16)), stored=draw(st.booleans()))
    batch = shape(draw, 0, 2)
    depth = draw(st.integers(1, 6))
    a = floats(draw, (*batch, 3, depth), edges=EDGES)
    b = floats(draw, (*[draw(st.sampled_from([1, dim])) for dim in batch], depth, 2), edges=EDGES)
    return node("MatMul", a, b, opset=opset(draw), scale=of_products(a, b))


def _cumsum_of_integers(draw: DrawFn) -> Instance:
    return node("CumSum", np.arange(draw(st.integers(1, 5))), Constant(np.array(0)))


@case("cumsum-integers", lambda draw: node("CumSum", floats(draw, (3,), edges=EDGES), Constant(np.array(0))))
def _(draw: DrawFn) -> Instance:
    kind = np.iinfo(draw(st.sampled_from([np.int32, np.int64])))
    x = integers(draw, shape(draw), kind.min, kind.max).astype(kind.dtype)
    flags = {"exclusive": draw(st.integers(0, 1)), "reverse": draw(st.integers(0, 1))}
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    return node("CumSum", x, Constant(np.array(axis)), opset=opset(draw, 11, 14, 17), **flags)


def _sums(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw), edges=EDGES)
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    scale = np.abs(x.astype(np.float64)).sum(axis, keepdims=True) * (x.shape[axis] + 2)
    flags = {"exclusive": draw(st.integers(0, 1)), "reverse": draw(st.integers(0, 1))}
    return node("CumSum", x, Constant(np.array(axis)), opset=opset(draw, 11, 14, 17), scale=scale, **flags)


case("cumsum-matmul", _cumsum_of_integers)(_sums)
case("cumsum-steps", _cumsum_of_integers)(_sums)
