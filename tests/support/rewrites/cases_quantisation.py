"""Quantisation and narrower integers, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, case, floats, integers, node, opset, shape

DrawFn = st.DrawFn


def _scales(draw: DrawFn, x: np.ndarray, kind: type) -> tuple[list[np.ndarray], dict[str, int], int]:
    """Scale and perhaps zero point, for the tensor or for each place of an axis."""
    axis = draw(st.integers(0, x.ndim - 1))
    dims, attributes, version = (
        ((x.shape[axis],), {"axis": axis}, opset(draw, 13, 19))
        if draw(st.booleans())
        else ((), {}, opset(draw, 11, 13, 19, 21))
    )
    scale = floats(draw, dims, low=0.01, high=2.0, edges=(0.5, 1.0))
    info = np.iinfo(kind)
    zero = integers(draw, dims, int(info.min), int(info.max), kind)
    return [scale, zero] if draw(st.booleans()) or kind != np.uint8 else [scale], attributes, version


def _kind(draw: DrawFn) -> type:
    return draw(st.sampled_from([np.uint8, np.int8]))


def _dequantised_int32(draw: DrawFn) -> Instance:
    return node("DequantizeLinear", integers(draw, (3,), -9, 9, np.int32), np.array(0.5, np.float32))


@case("dequantize-parts", _dequantised_int32)
def _(draw: DrawFn) -> Instance:
    kind = _kind(draw)
    info = np.iinfo(kind)
    x = integers(draw, shape(draw), int(info.min), int(info.max), kind)
    given, attributes, version = _scales(draw, x, kind)
    return node("DequantizeLinear", x, *map(Constant, given), opset=version, **attributes)


def _quantised_int16(draw: DrawFn) -> Instance:
    return node(
        "QuantizeLinear", floats(draw, (3,)), np.array(0.5, np.float32), Constant(np.array(0, np.int16)), opset=21
    )


@case("quantize-parts", _quantised_int16)
def _(draw: DrawFn) -> Instance:
    edges = (0.0, -0.0, 0.25, 0.75, -0.25, 1.25, 1e9, -1e9, np.inf, -np.inf, 63.5, 64.0)
    x = floats(draw, shape(draw), edges=edges, spread=60)
    given, attributes, version = _scales(draw, x, _kind(draw))
    return node("QuantizeLinear", x, *map(Constant, given), opset=version, **attributes)


def _gather(draw: DrawFn, kind: type) -> Instance:
    x = floats(draw, shape(draw))
    axis = draw(st.integers(0, x.ndim - 1))
    size = x.shape[axis]
    index = integers(draw, shape(draw, 0, 2), -size, size - 1, kind)
    return node(
        "Gather", x, Constant(index) if draw(st.booleans()) else index, axis=axis, opset=opset(draw, 11, 13, 17)
    )


@case("index-int32", lambda draw: _gather(draw, np.int32))
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        x = floats(draw, (3, 4))
        index = integers(draw, (2, 4), -3, 2)
        if draw(st.booleans()):
            return node("ScatterElements", x, np.arange(8).reshape(2, 4) // 4, x[:2], axis=0, opset=opset(draw, 11, 13))
        return node("GatherElements", x, index, axis=0, opset=opset(draw, 11, 13))
    return _gather(draw, np.int64)


def _floats_added(draw: DrawFn) -> Instance:
    x = floats(draw, (3,))
    return node("Add", x, x)


@case("arithmetic-int32", _floats_added)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    op = draw(
        st.sampled_from(
            ["Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "Less", "LessOrEqual", "GreaterOrEqual"]
        )
    )
    a, b = (integers(draw, dims, -(2**15) + 1, 2**15 - 1) for _ in range(2))
    if op == "Div":
        b[b == 0] = 1
    return node(op, a, Constant(b) if draw(st.booleans()) else b, opset=opset(draw, 13, 17))


@case("dynamicquantize-parts", lambda draw: node("DynamicQuantizeLinear", floats(draw, (0,), edges=()), outputs=3))
def _(draw: DrawFn) -> Instance:
    x = floats(
        draw, shape(draw), edges=(0.0, -0.0, 0.5, 127.5, -127.5, 1e9), spread=draw(st.sampled_from([0.0, 1.0, 60.0]))
    )
    return node("DynamicQuantizeLinear", x, outputs=3, opset=opset(draw, 11, 13, 17, 21))


def _bytes(draw: DrawFn, dims: tuple[int, ...], kind: type) -> np.ndarray:
    info = np.iinfo(kind)
    return integers(draw, dims, int(info.min), int(info.max), kind)


@case(
    "matmulinteger-matmul",
    lambda draw: node("MatMulInteger", _bytes(draw, (3,), np.uint8), _bytes(draw, (3, 2), np.uint8)),
)
def _(draw: DrawFn) -> Instance:
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    depth = draw(st.sampled_from([1, 4, 300, 1000]))
    left, right = np.uint8, draw(st.sampled_from([np.uint8, np.int8]))
    batch = draw(st.sampled_from([(), (2,)]))
    a, b = _bytes(draw, (*batch, rows, depth), left), _bytes(draw, (depth, columns), right)
    if right is np.int8:
        # onnxruntime adds two such products in 16 bits, which saturate, on processors that have AVX2 and no VNNI
        b = b // 2
    zeros = []
    if draw(st.booleans()):
        zeros = [Constant(_bytes(draw, (), left))]
        if draw(st.booleans()):
            zeros.append(Constant(_bytes(draw, draw(st.sampled_from([(), (columns,)])), right)))
    return node("MatMulInteger", a, Constant(b) if draw(st.booleans()) else b, *zeros)


def _computed_kernel(draw: DrawFn) -> Instance:
    return node("ConvInteger", _bytes(draw, (1, 1, 3, 3), np.uint8), _bytes(draw, (1, 1, 2, 2), np.uint8))


@case("convinteger-conv", _computed_kernel)
def _(draw: DrawFn) -> Instance:
    groups, inner = draw(st.integers(1, 2)), draw(st.sampled_from([1, 3]))
    if groups == 1:
        inner = draw(st.sampled_from([1, 40]))
    x = _bytes(draw, (1, inner * groups, 5, 5), np.uint8)
    kernel = _bytes(draw, (2 * groups, inner, 3, 3), np.uint8)
    zeros = [_bytes(draw, (), np.uint8), Constant(_bytes(draw, (), np.uint8))] if draw(st.booleans()) else []
    more = draw(st.sampled_from([{}, {"pads": [1, 1, 1, 1]}, {"strides": [2, 2]}]))
    return node("ConvInteger", x, Constant(kernel), *zeros, group=groups, **more)
