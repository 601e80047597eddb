"""Quantised ops of `com.microsoft` and QLinear ops, inside and just outside of the rules' conditions."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import helper

from support.rewrites.cases_contrib import MS, TAME
from support.rewrites.instances import Constant, Instance, case, floats, integers, node, opset, shape

DrawFn = st.DrawFn


def _matmulnbits(draw: DrawFn, *, level: int = 0, bits: int = 4) -> Instance:
    depth, columns, block = (
        draw(st.sampled_from([16, 24, 32, 48])),
        draw(st.integers(1, 5)),
        draw(st.sampled_from([16, 32])),
    )
    blocks = -(-depth // block)
    packed = integers(draw, (columns, blocks, block * bits // 8), 0, 255, np.uint8)
    scales = floats(draw, (columns * blocks,), edges=(), low=0.01, high=0.5)
    zeros = integers(draw, (columns * -(-blocks * bits // 8),), 0, 255, np.uint8) if draw(st.booleans()) else None
    x = floats(draw, (*shape(draw, 1, 2), depth), edges=TAME, spread=1)
    scale = np.abs(x.astype(np.float64)).sum(-1, keepdims=True) * (1 << bits) * 0.5 * (depth + 2)
    given = [x, Constant(packed), Constant(scales), *([] if zeros is None else [Constant(zeros)])]
    sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    return node("MatMulNBits", *given, scale=scale, **sizes, **MS)


@case("matmulnbits-matmul", lambda draw: _matmulnbits(draw, level=4))
def _(draw: DrawFn) -> Instance:
    return _matmulnbits(draw, bits=draw(st.sampled_from([4, 8])))


@case("matmulnbits-float", lambda draw: _matmulnbits(draw, level=0))
def _(draw: DrawFn) -> Instance:
    instance = _matmulnbits(draw, level=4)
    largest = float(np.abs(instance.feeds["x0"]).max())
    return replace(instance, scale=largest * 16 * 0.5 * instance.feeds["x0"].shape[-1])


def _matmulbnb4(draw: DrawFn, *, block: int) -> Instance:
    depth, columns = draw(st.sampled_from([16, 24, 48])), draw(st.integers(1, 5))
    packed = integers(draw, ((depth * columns + 1) // 2,), 0, 255, np.uint8)
    largest = floats(draw, (-(-depth * columns // block),), edges=(), low=0.01, high=3.0)
    x = floats(draw, (*shape(draw, 1, 2), depth), edges=TAME, spread=1)
    scale = np.abs(x.astype(np.float64)).sum(-1, keepdims=True) * 3 * (depth + 2)
    sizes = {"K": depth, "N": columns, "block_size": block, "quant_type": draw(st.integers(0, 1))}
    return node("MatMulBnb4", x, Constant(packed), Constant(largest), scale=scale, **sizes, **MS)


def _computed_weights(draw: DrawFn) -> Instance:
    x, packed = floats(draw, (2, 16), edges=TAME), integers(draw, (8,), 0, 255, np.uint8)
    sizes = {"K": 16, "N": 1, "block_size": 16, "quant_type": 1}
    return node("MatMulBnb4", x, packed, Constant(np.ones(1, np.float32)), **sizes, **MS)


@case("matmulbnb4-matmul", _computed_weights)
def _(draw: DrawFn) -> Instance:
    return _matmulbnb4(draw, block=draw(st.sampled_from([16, 32])))


def _gatherblock(draw: DrawFn, *, bits: int, stored: bool = True) -> Instance:
    rows, columns, block = draw(st.integers(1, 5)), draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([16, 32]))
    blocks = -(-columns // block)
    table = integers(draw, (rows, columns * bits // 8), 0, 255, np.uint8)
    scales = floats(draw, (rows, blocks), edges=(), low=0.01, high=2.0)
    zeros = integers(draw, (rows, -(-blocks * bits // 8)), 0, 255, np.uint8) if draw(st.booleans()) else None
    places = integers(draw, shape(draw, 1, 2), -rows, rows - 1)
    given = [
        Constant(table) if stored else table,
        places,
        Constant(scales),
        zeros if zeros is None else Constant(zeros),
    ]
    sizes = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    return node("GatherBlockQuantized", *given, opset=21, **sizes, **MS)


@case("gatherblockquantized-gather", lambda draw: _gatherblock(draw, bits=4, stored=False))
def _(draw: DrawFn) -> Instance:
    return _gatherblock(draw, bits=draw(st.sampled_from([2, 4, 8])))


def _of_integers(depth: int, scale: float, bias: np.ndarray | None) -> float:
    return 255 * 255 * depth * scale + (0 if bias is None else float(np.abs(bias).max()))


@case(
    "matmulintegertofloat-matmulinteger",
    lambda draw: node(
        "MatMulIntegerToFloat",
        *(integers(draw, (2, 2), 0, 9, np.uint8),) * 2,
        *(np.ones((), np.float32),) * 2,
        None,
        np.ones((), np.uint8),
        **MS,
    ),
)
def _(draw: DrawFn) -> Instance:
    rows, depth, columns = (draw(st.integers(1, 5)) for _ in range(3))
    kind = draw(st.sampled_from([np.uint8, np.int8]))
    low, high = (0, 255) if kind is np.uint8 else (-128, 127)
    a, b = integers(draw, (rows, depth), 0, 255, np.uint8), integers(draw, (depth, columns), low, high, kind)
    scales = [
        floats(draw, dims, edges=(), low=0.001, high=1.0) for dims in ((), draw(st.sampled_from([(), (columns,)])))
    ]
    zeros = [integers(draw, (), 0, 255, np.uint8), integers(draw, (), low, high, kind)]
    bias = floats(draw, (columns,), edges=TAME) if draw(st.booleans()) else None
    given = (a, Constant(b), scales[0], Constant(scales[1]), Constant(zeros[0]), Constant(zeros[1]), bias)
    return node("MatMulIntegerToFloat", *given, scale=_of_integers(depth, 1, bias), **MS)


@case(
    "dynamicquantizematmul-parts",
    lambda draw: node("DynamicQuantizeLinear", floats(draw, (2, 2), edges=TAME), outputs=3),
)
def _(draw: DrawFn) -> Instance:
    rows, depth, columns = (draw(st.integers(1, 5)) for _ in range(3))
    x = floats(draw, (rows, depth), edges=TAME)
    b = integers(draw, (depth, columns), -128, 127, np.int8)
    scale = floats(draw, draw(st.sampled_from([(), (columns,)])), edges=(), low=0.001, high=1.0)
    zero = Constant(integers(draw, (), -128, 127, np.int8)) if draw(st.booleans()) else None
    bias = floats(draw, (columns,), edges=TAME) if draw(st.booleans()) else None
    size = _of_integers(depth, float(np.abs(x).max()) / 64, bias)
    return node("DynamicQuantizeMatMul", x, Constant(b), Constant(scale), zero, bias, scale=size, **MS)


def _contribquantize(draw: DrawFn, *, kind: type, version: int) -> Instance:
    info = np.iinfo(kind)
    dims = shape(draw, 2, 3)
    zero = np.array(integers(draw, (), int(info.min), int(info.max), kind))
    scale = floats(draw, (), edges=(), low=0.01, high=2.0)
    given = (Constant(scale), Constant(zero))
    if draw(st.booleans()):
        return node("QuantizeLinear", floats(draw, dims, edges=TAME, spread=60), *given, opset=version, **MS)
    x = integers(draw, dims, int(info.min), int(info.max), kind)
    return node("DequantizeLinear", x, *given, opset=version, **MS)


@case("contribquantize-quantize", lambda draw: _contribquantize(draw, kind=np.uint16, version=17))
def _(draw: DrawFn) -> Instance:
    kind = draw(st.sampled_from([np.uint8, np.int8, np.uint16, np.int16]))
    return _contribquantize(draw, kind=kind, version=21 if np.iinfo(kind).bits > 8 else opset(draw, 13, 17, 21))


def _qlinear(draw: DrawFn, op: str) -> Instance:
    kind = draw(st.sampled_from([np.uint8, np.int8]))
    low, high = (0, 255) if kind is np.uint8 else (-128, 127)

    def steps() -> list[Constant]:
        scale = floats(draw, (), edges=(), low=0.01, high=0.5)
        return [Constant(np.array(scale)), Constant(np.array(integers(draw, (), low, high, kind)))]

    def some(*dims: int) -> np.ndarray:
        return integers(draw, dims, low, high, kind)

    domain, chosen = MS, dict[str, Any]()
    given: list[Any] = [some(1, 2, 5, 5), *steps()]
    if op in ("QLinearAdd", "QLinearMul"):
        given += [some(2, 5, 5), *steps()]
    elif op == "QLinearConv":
        domain, chosen = {"domain": ""}, {"pads": [1, 1, 1, 1]}
        given += [Constant(some(3, 2, 3, 3)), *steps()]
    elif op == "QLinearMatMul":
        domain = {"domain": ""}
        given = [some(2, 4), *steps(), some(4, 3), *steps()]
    elif op == "QLinearLeakyRelu":
        chosen = {"alpha": 0.125}
    elif op == "QLinearAveragePool":
        chosen = {"kernel_shape": [2, 2], "channels_last": 0}
    elif op == "QLinearWhere":
        given = [integers(draw, (5, 5), 0, 1).astype(np.bool_), *given, some(1, 5, 5), *steps()]
    elif op == "QGemm":
        turned = draw(st.integers(0, 1))
        given = [some(2, 4), *steps(), Constant(some(3, 4) if turned else some(4, 3)), *steps()]
        given.append(Constant(integers(draw, (3,), -999, 999, np.int32)) if draw(st.booleans()) else None)
        chosen = {"transB": turned}
    elif op == "QLinearConcat":
        return node(op, *steps(), *given, some(1, 1, 5, 5), *steps(), axis=1, **MS)
    given += steps()
    if op == "QLinearConv" and draw(st.booleans()):
        given.append(Constant(integers(draw, (3,), -999, 999, np.int32)))
    return node(op, *given, **chosen, **domain)


def _channels_last(draw: DrawFn) -> Instance:
    instance = _qlinear(draw, "QLinearGlobalAveragePool")
    instance.model.graph.node[0].attribute.append(helper.make_attribute("channels_last", 1))
    return instance


_OPS = (
    *("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"),
    *("QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearConcat", "QLinearWhere", "QGemm"),
)


@case("qlinear-qdq", _channels_last)
def _(draw: DrawFn) -> Instance:
    instance = _qlinear(draw, op := draw(st.sampled_from(_OPS)))
    if op == "QLinearSigmoid" and draw(st.booleans()):  # its inputs and its output are those of Softmax
        (only,) = instance.model.graph.node
        only.op_type = "QLinearSoftmax"
        only.attribute.extend(helper.make_attribute(*it) for it in (("axis", -1), ("opset", 13)))
    return instance
