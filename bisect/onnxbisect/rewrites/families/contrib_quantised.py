"""Quantised ops of `com.microsoft`, and QLinear ops, as floats, QuantizeLinear and DequantizeLinear.

onnxruntime's quantiser and exporters of language models write them. Weights are written out as floats; ops that compute
in 8 bits become the op on floats between DequantizeLinear and QuantizeLinear, the form that compilers of NPUs read.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import OF_PRODUCTS, ORT_CONTRIB, Bound, operator, pytorch, rule
from onnxbisect.rewrites.site import Site, cast, concat

#: The 16 numbers of the 4-bit floats of bitsandbytes: FP4, then NF4.
_BNB4 = (
    np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)[None] * np.array([[1], [-1]], np.float32),
    np.array(
        [
            *(-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
            *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0),
            *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
            *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1),
        ],
        np.float32,
    ),
)


@pytorch("the model before its weights were quantised")
@rule("com.microsoft::MatMulNBits -> MatMul Add", Exactness.ROUNDING, OF_PRODUCTS, rank=24, source=ORT_CONTRIB)
def matmulnbits_matmul(at: Site) -> str:
    """The weights of 2, 4 or 8 bits written out as floats, which take up to 16 times the space; then MatMul."""
    at.demand(at.attribute("accuracy_level", 0) < 4, "onnxruntime computes the product in 8 bits")
    return _with_floats(at)


@pytorch("the model before its weights were quantised")
@rule(
    "com.microsoft::MatMulNBits -> MatMul Add",
    Exactness.APPROXIMATE,
    Bound(epsilons=1 << 16, of="the largest magnitude of the input, times the sum of the weights' magnitudes"),
    rank=24,
    source=ORT_CONTRIB,
)
def matmulnbits_float(at: Site) -> str:
    """The same where onnxruntime rounds the input to 8 bits, as accuracy_level=4 says: the floats lose less."""
    at.demand(at.attribute("accuracy_level", 0) == 4, "onnxruntime computes the product in floats")
    return _with_floats(at)


def _with_floats(at: Site) -> str:
    """MatMulNBits as MatMul with weights written out."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(not at.has(4), "the groups of the weights are in another order")
    depth, columns = at.attribute("K", 0), at.attribute("N", 0)
    bits, block = at.attribute("bits", 4), at.attribute("block_size", 0)
    at.demand(bits in (2, 4, 8) and block > 0, f"weights of {bits} bits in blocks of {block}")
    blocks = -(-depth // block)
    packed, scales = at.value(1), at.value(2)
    at.demand(packed.dtype == np.uint8 and scales.dtype == np.float32, "weights or scales are of another type")
    numbers = _unpacked(packed.reshape(columns, -1), bits)[:, : blocks * block].reshape(columns, blocks, block)
    zeros = np.full((1, 1, 1), 1 << (bits - 1), np.float32)
    if at.has(3):
        stored = at.value(3)
        if stored.dtype == np.uint8:
            stored = _unpacked(stored.reshape(columns, -1), bits)[:, :blocks]
        zeros = stored.reshape(columns, blocks, 1).astype(np.float32)
    values = (numbers.astype(np.float32) - zeros) * scales.reshape(columns, blocks, 1)
    product = at.op("MatMul", at.input(0), at.constant(np.ascontiguousarray(values.reshape(columns, -1)[:, :depth].T)))
    return at.op("Add", product, at.input(5)) if at.has(5) else product


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The numbers in bytes of each row, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[..., None] >> shifts) & ((1 << bits) - 1)).reshape(len(packed), -1)


@pytorch("the model before its weights were quantised")
@rule("com.microsoft::MatMulBnb4 -> MatMul", Exactness.ROUNDING, OF_PRODUCTS, rank=24, source=ORT_CONTRIB)
def matmulbnb4_matmul(at: Site) -> str:
    """The weights of 4-bit floats written out as floats, which take 8 times the space; then MatMul."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand_dtype(TensorProto.FLOAT, slot=2)
    depth, columns = at.attribute("K", 0), at.attribute("N", 0)
    block, kind = at.attribute("block_size", 0), at.attribute("quant_type", 0)
    at.demand(block > 0 and kind in (0, 1), "the weights are of another kind")
    packed = at.value(1).reshape(-1)
    places = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1)[: depth * columns]  # the high half comes first
    factors = np.repeat(at.value(2).reshape(-1), block)[: len(places)]
    weights = (_BNB4[kind].reshape(-1)[places] * factors).reshape(columns, depth)
    return at.op("MatMul", at.input(0), at.constant(weights.T if at.attribute("transB", 1) else weights))


@pytorch("the model before its weights were quantised")
@rule("com.microsoft::GatherBlockQuantized -> Gather", Exactness.EXACT, rank=24, source=ORT_CONTRIB)
def gatherblockquantized_gather(at: Site) -> str:
    """The rows of a quantised table written out as floats, which take up to 16 times the space; then Gather."""
    at.demand_dtype(TensorProto.FLOAT, slot=2)
    table, bits = at.value(0), at.attribute("bits", 4)
    if table.dtype == np.uint8:
        at.demand(bits in (2, 4, 8), f"weights of {bits} bits")
        middle = 1 << (bits - 1)
        table = _unpacked(table.reshape(-1, table.shape[-1]), bits).reshape(*table.shape[:-1], -1)
    else:
        at.demand(at.dtype(0) in (TensorProto.INT4, TensorProto.UINT4), "the weights are of another kind")
        middle = 0
    axis, block = at.attribute("quantize_axis", 1) % table.ndim, at.attribute("block_size", 128)
    at.demand(block > 0, "the weights are of another kind")
    scales, length = at.value(2), table.shape[axis]
    zeros: np.ndarray = np.full_like(scales, middle)
    if at.has(3):
        zeros = at.value(3)
        if at.dtype(3) == TensorProto.UINT8:
            zeros = _unpacked(zeros.reshape(-1, zeros.shape[-1]), bits).reshape(*zeros.shape[:-1], -1)
            zeros = zeros[..., : scales.shape[-1]]
    places = np.arange(length) // block
    offsets = np.take(zeros.astype(np.float32), places, axis=axis)
    values = (table.astype(np.float32) - offsets) * np.take(scales, places, axis=axis)
    return at.op("Gather", at.constant(values), at.input(1), axis=at.attribute("gather_axis", 0) % table.ndim)


#: What is lost where a sum of integers becomes a float, and times the two scales.
_OF_SUM = Bound(epsilons=4, of="the product of the integers and the scales, together with the bias")


@pytorch("the model before it was quantised")
@rule(
    "com.microsoft::MatMulIntegerToFloat -> MatMulInteger Cast Mul Add",
    Exactness.ROUNDING,
    _OF_SUM,
    rank=24,
    source=ORT_CONTRIB,
)
def matmulintegertofloat_matmulinteger(at: Site) -> str:
    """The product of integers, as a float, times the scales, and the bias."""
    at.demand_dtype(TensorProto.FLOAT, slot=2)
    zeros = [at.input(slot) if at.has(slot) else "" for slot in (4, 5)]
    scale = at.op("Mul", at.input(2), at.input(3))
    return _rescaled(at, [at.input(0), at.input(1), *zeros], scale, bias=6)


@pytorch("the model before it was quantised")
@rule(
    "com.microsoft::DynamicQuantizeMatMul -> DynamicQuantizeLinear MatMulInteger Cast Mul Add",
    Exactness.ROUNDING,
    _OF_SUM,
    rank=24,
    source=ORT_CONTRIB,
)
def dynamicquantizematmul_parts(at: Site) -> str:
    """The input quantised by its range, the product of integers, as a float, times the scales, and the bias."""
    at.demand_dtype(TensorProto.FLOAT)
    x, scale, zero = at.ops("DynamicQuantizeLinear", [at.input(0)], 3)
    scale = at.op("Mul", scale, at.input(2))
    return _rescaled(at, [x, at.input(1), zero, at.input(3) if at.has(3) else ""], scale, bias=4)


def _rescaled(at: Site, operands: Sequence[str], scale: str, *, bias: int) -> str:
    """MatMulInteger times the scales, and the bias."""
    given = list(operands)
    while not given[-1]:
        given.pop()
    at.demand("" not in given, "the second zero point has no first one")
    result = at.op("Mul", cast(at, at.op("MatMulInteger", *given), TensorProto.FLOAT), scale)
    return at.op("Add", result, at.input(bias)) if at.has(bias) else result


@pytorch("torch.nn.Linear, quantised in ONNX's own QDQ form")
@rule(
    "com.microsoft::QuantizeLinear com.microsoft::DequantizeLinear -> QuantizeLinear DequantizeLinear",
    Exactness.EXACT,
    rank=24,
    source=ORT_CONTRIB,
)
def contribquantize_quantize(at: Site) -> str:
    """The op of the same name in ONNX; for 16 bits from operator set 21 on."""
    at.demand_dtype(TensorProto.FLOAT, slot=1 if at.node.op_type == "DequantizeLinear" else 0)
    kind = at.dtype(0 if at.node.op_type == "DequantizeLinear" else 2)
    eight = kind in (TensorProto.UINT8, TensorProto.INT8)
    at.demand(eight or (at.opset >= 21 and kind in (TensorProto.UINT16, TensorProto.INT16)), "numbers of another type")
    axis: dict[str, Any] = {} if not at.shape(1) or at.opset < 13 else {"axis": at.attribute("axis", 1)}
    at.demand(not at.shape(1) or at.opset >= 13, "a scale for each channel")
    return at.op(at.node.op_type, *at.inputs(), **axis)


_STEP = Bound(absolute=1, note="of the whole numbers, where the exact result lies halfway between two of them")
_QLINEAR = " ".join(
    f"com.microsoft::{op}"
    for op in (
        *("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool"),
        *("QLinearAveragePool", "QLinearConcat", "QLinearSoftmax", "QLinearWhere", "QGemm"),
    )
)


@pytorch("quant_format=QuantFormat.QDQ in onnxruntime's quantiser, instead of QOperator")
@rule(
    f"QLinearConv QLinearMatMul {_QLINEAR} -> DequantizeLinear Conv MatMul Add Mul Sigmoid LeakyRelu GlobalAveragePool "
    "AveragePool Concat Softmax Where Gemm QuantizeLinear",
    Exactness.APPROXIMATE,
    _STEP,
    rank=24,
    source=operator("QLinearConv"),
)
def qlinear_qdq(at: Site) -> str:
    """The op on floats, between DequantizeLinear and QuantizeLinear."""
    op = at.node.op_type
    if op == "QLinearConcat":
        count = (len(at.node.input) - 2) // 3
        inputs = [_dequantized(at, 2 + 3 * number) for number in range(count)]
        return at.op("QuantizeLinear", concat(at, inputs, at.attribute("axis", 0)), at.input(0), at.input(1))
    if op == "QLinearWhere":
        chosen = at.op("Where", at.input(0), _dequantized(at, 1), _dequantized(at, 4))
        return at.op("QuantizeLinear", chosen, at.input(7), at.input(8))
    kind = op.removeprefix("QLinear").removeprefix("Q")
    given, end = [_dequantized(at, 0)], 3
    if kind in ("Add", "Mul", "Conv", "MatMul", "Gemm"):
        columns = 0 if kind == "Conv" or at.attribute("transB", 0) else -1
        given, end = [*given, _dequantized(at, 3, axis=columns)], 6
    bias = {"Conv": 8, "Gemm": 6}.get(kind, len(at.node.input))
    if at.has(bias):
        scales = (at.value(1) * at.value(4)).astype(np.float32)
        given.append(at.constant((at.value(bias) * scales).astype(np.float32)))
    if kind == "Gemm":
        at.demand(at.attribute("alpha", 1.0) == 1, "the product has a factor")
        at.demand(at.has(7), "it gives floats")
        end = 7
    at.demand(not at.attribute("channels_last", 0), "channels come last")
    left_out = ("channels_last", "opset")
    own: dict[str, Any] = {it.name: at.attribute(it.name, None) for it in at.node.attribute if it.name not in left_out}
    if kind == "Softmax":
        at.demand(at.attribute("opset", 13) >= 13 <= at.opset, "an axis and all behind it are one")
    result = at.op(kind, *given, **own)
    return at.op("QuantizeLinear", result, *(at.input(slot) for slot in (end, end + 1) if at.has(slot)))


def _dequantized(at: Site, slot: int, axis: int = 1) -> str:
    """An input, whose scale and zero point follow it, as floats."""
    dims = at.shape(slot + 1)
    single = not dims or dims == (1,)
    at.demand(single or at.opset >= 13, "a scale for each channel")
    given = [at.input(number) for number in (slot, slot + 1, slot + 2) if at.has(number)]
    if dims == (1,):
        given[1:] = [at.op("Reshape", tensor, at.integers([])) for tensor in given[1:]]
    along: dict[str, Any] = {} if single else {"axis": axis % at.rank(slot)}
    return at.op("DequantizeLinear", *given, **along)
