"""Shape ops, Transpose, Expand, Pad and their like, inside and just outside of the rules' conditions."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, anything, case, dynamic, floats, integers, node, opset, shape

DrawFn = st.DrawFn


def _ints(values: object) -> Constant:
    return Constant(np.array(values, np.int64))


def _empty(draw: DrawFn) -> Instance:
    return node("Flatten", np.zeros((0, draw(st.integers(1, 3))), np.float32))


@case("squeeze-reshape", _empty)
def _(draw: DrawFn) -> Instance:
    x = anything(draw, (*shape(draw, 1, 2), 1, *shape(draw, 0, 2)))
    op = draw(st.sampled_from(["Squeeze", "Unsqueeze", "Flatten", "Identity"]))
    version = opset(draw, 9, 11, 13, 17, 21)
    if op == "Identity":
        return node(op, x, opset=version)
    if op == "Flatten":
        return node(op, x, axis=draw(st.integers(0, x.ndim)), opset=version)
    if op == "Squeeze":
        axes = [axis for axis, dim in enumerate(x.shape) if dim == 1][: draw(st.integers(1, 4))]
    else:
        axes = sorted(draw(st.permutations(range(x.ndim + 2)))[:2])
    return node(op, x, axes=axes, opset=version) if version < 13 else node(op, x, _ints(axes), opset=version)


@case(
    "reshape-constant",
    lambda draw: node("Reshape", anything(draw, (2, 3)), _ints(draw(st.sampled_from([[6], [3, 2]])))),
)
def _(draw: DrawFn) -> Instance:
    x = anything(draw, shape(draw))
    target = [0, *[1] * draw(st.integers(0, 2)), -1] if x.ndim > 1 else [-1]
    return node("Reshape", x, _ints(target), opset=opset(draw))


def _transpose(draw: DrawFn, dims: tuple[int, ...], perm: list[int] | None) -> Instance:
    return node("Transpose", anything(draw, dims), opset=opset(draw), **({} if perm is None else {"perm": perm}))


@case("transpose-merge", lambda draw: _transpose(draw, (2, 3, 4), draw(st.sampled_from([[2, 1, 0], None, [1, 0, 2]]))))
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 2, 6, 3)
    perm = draw(st.permutations(range(len(dims))))
    if 1 not in dims and not any(b == a + 1 for a, b in pairwise(perm)):
        perm = list(range(len(dims)))
    return _transpose(draw, dims, list(perm))


@case("transpose-twice", lambda draw: _transpose(draw, shape(draw, 1, 5), None))
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 6, 7, 3)
    perm = list(draw(st.permutations(range(len(dims))).filter(lambda perm: perm != list(range(len(dims))))))
    return _transpose(draw, dims, perm)


ELEMENTWISE = (
    *("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsNaN"),
    *("LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
    *("Softplus", "Softsign", "Sqrt", "Tanh", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos"),
    *("Cosh", "IsInf", "Sinh", "Tan"),
)


@case("elementwise-flat", lambda draw: node("Relu", floats(draw, shape(draw))))
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw, 5, 6, 3))
    ops = [*ELEMENTWISE, "Cast", "Clip", "Not"]
    op = ops[draw(st.integers(0, 10**6)) % len(ops)]
    if op == "Cast":
        return node(op, np.nan_to_num(np.clip(x, -9, 9)), to=7, opset=20)
    if op == "Clip":
        return node(op, x, Constant(np.array(-1, np.float32)), None, opset=opset(draw, 11, 13, 17))
    if op == "Not":
        return node(op, x > 0, opset=20)
    return node(op, x, opset=20)


def _grown(draw: DrawFn) -> tuple[np.ndarray, list[int]]:
    out = shape(draw)
    x = anything(draw, [1 if draw(st.booleans()) else dim for dim in out][draw(st.integers(0, len(out) - 1)) :])
    return x, list(out)


def _expand(draw: DrawFn) -> Instance:
    x, out = _grown(draw)
    return node("Expand", x, _ints(out), opset=opset(draw, 8, 13, 17))


def _expand_to_computed(draw: DrawFn) -> Instance:
    return node("Expand", anything(draw, (1, 3)), np.array([2, draw(st.sampled_from([1, 3]))]))


@case("expand-concat", _expand_to_computed)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 1, 3)
    if draw(st.booleans()):
        count = [draw(st.integers(1, 3)) for _ in dims]
        count[0] = 2
        return node("Tile", anything(draw, dims), _ints(count), opset=opset(draw, 7, 13, 17))
    return node("Expand", anything(draw, (1, *dims)), _ints([2, *dims]), opset=opset(draw, 8, 13, 17))


@case("expand-tile", _expand_to_computed)
def _(draw: DrawFn) -> Instance:
    return _expand(draw)


def _expand_of_booleans(draw: DrawFn) -> Instance:
    return node("Expand", integers(draw, (1, 3), 0, 1).astype(np.bool_), _ints([2, 3]))


@case("expand-mul", _expand_of_booleans)
def _(draw: DrawFn) -> Instance:
    x, out = _grown(draw)
    kind = draw(st.sampled_from([np.float32, np.float64, np.int64, np.int32]))
    x = floats(draw, x.shape, dtype=kind) if np.dtype(kind).kind == "f" else integers(draw, x.shape, -9, 9, kind)
    return node("Expand", x, _ints(out), opset=opset(draw, 8, 13, 17))


@case("depthtospace-transpose", lambda draw: dynamic(node("DepthToSpace", floats(draw, (1, 4, 2, 2)), blocksize=2)))
def _(draw: DrawFn) -> Instance:
    block, (n, c, h, w) = draw(st.integers(1, 3)), shape(draw, 4, 4, 3)
    x = floats(draw, (n, c * block * block, h, w))
    mode = draw(st.sampled_from(["DCR", "CRD"]))
    return node("DepthToSpace", x, blocksize=block, mode=mode, opset=opset(draw, 11, 13, 17))


@case("spacetodepth-transpose", lambda draw: dynamic(node("SpaceToDepth", floats(draw, (1, 4, 2, 2)), blocksize=2)))
def _(draw: DrawFn) -> Instance:
    block, (n, c, h, w) = draw(st.integers(1, 3)), shape(draw, 4, 4, 3)
    return node("SpaceToDepth", floats(draw, (n, c, h * block, w * block)), blocksize=block, opset=opset(draw, 7, 13))


@case("concat-pairs", lambda draw: node("Concat", *[anything(draw, (2, 3))[:1].astype(np.float32)] * 2, axis=0))
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    axis = draw(st.integers(-len(dims), len(dims) - 1))
    first = anything(draw, dims)
    count = draw(st.integers(3, 5))
    return node("Concat", *[first] * count, axis=axis, opset=opset(draw, 11, 13, 17))


def _pad_nothing(draw: DrawFn) -> Instance:
    return node("Pad", floats(draw, (3, 4)), _ints([0, 0, 0, 0]), mode="wrap", opset=19)


def _moves(draw: DrawFn) -> Instance:
    x = floats(draw, (2, draw(st.integers(2, 3))))
    return draw(
        st.sampled_from(
            [
                node("Pad", x, _ints([1, 0, -1, 0]), opset=17),
                node("Slice", x, _ints([-1]), _ints([-9]), _ints([0]), _ints([-1]), opset=17),
                node("Gather", x, _ints([1, 0]), opset=17),
                node("Transpose", x[:, :2], perm=[1, 0], opset=17),
                node("Tile", x, _ints([1, 2]), opset=17),
                node("Sum", x, x, opset=17),
            ]
        )
    )


@case("copy-identity", _moves)
def _(draw: DrawFn) -> Instance:
    x, version = floats(draw, shape(draw, 2, 3)), opset(draw, 11, 13, 18)
    rank, first = x.ndim, x.shape[0]
    return draw(
        st.sampled_from(
            [
                node("Pad", x, _ints([0] * 2 * rank), mode=draw(st.sampled_from(["constant", "edge"])), opset=version),
                node("Pad", x, _ints([0] * 2 * rank), Constant(np.array(1.5, np.float32)), opset=version),
                node("Slice", x, _ints([0]), _ints([first]), _ints([0]), _ints([1]), opset=version),
                node("Gather", x, _ints(list(range(first))), opset=version),
                node("Transpose", x, perm=list(range(rank)), opset=version),
                node("Tile", x, _ints([1] * rank), opset=version),
                node("Expand", x, _ints([1]), opset=version),
                node("Concat", x, axis=0, opset=version),
                node(draw(st.sampled_from(["Sum", "Mean", "Max", "Min"])), x, opset=version),
            ]
        )
    )


@case("pad-slices", _pad_nothing)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 1, 3)
    mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    low = -1 if mode == "constant" else 0
    pads = []
    for _ in range(2):
        for dim in dims:
            most = {"reflect": dim - 1, "wrap": dim}.get(mode, 3)
            pads.append(draw(st.integers(low if dim > 2 else 0, max(most, 0))))
    if not any(pads):
        pads[0], mode = 1, "constant"
    x, version = floats(draw, dims), 19 if mode == "wrap" else opset(draw, 7, 11, 13, 18)
    fill = draw(st.sampled_from([0.0, -1.5, np.inf]))
    if version < 11:
        return node("Pad", x, pads=pads, mode=mode, opset=version, **({"value": fill} if mode == "constant" else {}))
    more = [Constant(np.array(fill, np.float32))] if mode == "constant" and draw(st.booleans()) else []
    return node("Pad", x, _ints(pads), *more, mode=mode, opset=version)


@case("pad-gather", lambda draw: node("Pad", floats(draw, (3, 4)), _ints([1, 0, 1, 0]), mode="edge", opset=17))
def _(draw: DrawFn) -> Instance:
    dims, mode = shape(draw, 1, 3), draw(st.sampled_from(["reflect", "edge", "wrap"]))
    dims = (7, *dims[1:])
    ends = [(draw(st.integers(0, dim - 1)), draw(st.integers(0, dim - 1))) for dim in dims]
    ends[0] = (draw(st.integers(1, 6)), draw(st.integers(4, 6)))
    pads = [before for before, _ in ends] + [after for _, after in ends]
    if mode == "wrap":
        return node("Pad", floats(draw, dims), _ints(pads), mode=mode, opset=19)
    version = opset(draw, 7, 11, 13, 18)
    if version < 11:
        return node("Pad", floats(draw, dims), pads=pads, mode=mode, opset=version)
    return node("Pad", floats(draw, dims), _ints(pads), mode=mode, opset=version)
