"""Quantisation as arithmetic, products of integers as products of floats, and integers in a narrower type."""

from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import NO_NAN, Domain, Values, executorch, operator, pytorch, rule
from onnxbisect.rewrites.site import Site, cast, clip, reduce, reshape, slice_axis

_BYTES = (TensorProto.UINT8, TensorProto.INT8)
_INDEXED = "Gather GatherElements ScatterElements"
_INT32_MAX = (1 << 31) - 1
#: Products of two of these fit 32 bits.
_NARROW = 1 << 15


def _along(at: Site, tensor: str, slot: int, axis: int) -> str:
    """A scale or zero point in a shape that broadcasts along its axis."""
    dims = at.shape(slot)
    at.demand(len(dims) < 2, "scales for blocks")
    if len(dims) == 0 or dims == (1,):
        return tensor
    rank = at.rank(0)
    return reshape(at, tensor, [dims[0] if number == axis % rank else 1 for number in range(rank)])


@pytorch("(x.float() - zero_point) * scale")
@rule("DequantizeLinear -> Cast Sub Reshape Mul", Exactness.EXACT, rank=10, source=operator("DequantizeLinear"))
def dequantize_parts(at: Site) -> str:
    """The whole number less the zero point, times the scale."""
    at.demand_dtype(*_BYTES)
    at.demand_dtype(TensorProto.FLOAT, slot=1)
    axis = at.attribute("axis", 1)
    number = cast(at, at.input(0), TensorProto.FLOAT)
    if at.has(2):
        number = at.op("Sub", number, _along(at, cast(at, at.input(2), TensorProto.FLOAT), 2, axis))
    return at.op("Mul", number, _along(at, at.input(1), 1, axis))


@pytorch("(x / scale).round().add(zero_point).clamp(0, 255).to(torch.uint8)")
@rule(
    "QuantizeLinear -> Div Round Cast Add Clip Reshape",
    Exactness.DOMAIN,
    domain=NO_NAN,
    rank=10,
    source=operator("QuantizeLinear"),
)
def quantize_parts(at: Site) -> str:
    """Divided by the scale, rounded, moved by the zero point, cut to what the type holds."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand_dtype(TensorProto.FLOAT, slot=1)
    dtype = at.dtype(2) if at.has(2) else TensorProto.UINT8
    at.demand(dtype in _BYTES and not at.has_attribute("output_dtype"), "it quantises to other than 8 bits")
    axis = at.attribute("axis", 1)
    steps = at.op("Round", at.op("Div", at.input(0), _along(at, at.input(1), 1, axis)))
    if at.has(2):
        steps = at.op("Add", steps, _along(at, cast(at, at.input(2), TensorProto.FLOAT), 2, axis))
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    return cast(at, clip(at, steps, float(limits.min), float(limits.max)), dtype)


@pytorch("indices.int() instead of indices of int64")
@rule(f"{_INDEXED} -> {_INDEXED} Cast", Exactness.EXACT, rank=10, source=executorch("qualcomm/_passes/i64_to_i32.py"))
def index_int32(at: Site) -> str:
    """Indices of 64 bits in 32; constants beforehand."""
    at.demand_dtype(TensorProto.INT64, slot=1)
    at.demand(max(at.shape(0), default=1) <= _INT32_MAX, "the tensor is too large for an index of 32 bits")
    if at.is_constant(1):
        at.demand(bool((np.abs(at.value(1)) <= _INT32_MAX).all()), "an index is out of range")
        index = at.constant(at.value(1).astype(np.int32))
    else:
        index = cast(at, at.input(1), TensorProto.INT32)
    return at.like(at.input(0), index, *at.node.input[2:])


def _are_narrow(values: Values) -> bool:
    return all(value is not None and bool((np.abs(value) < _NARROW).all()) for value in values)


_INTEGER_OPS = "Add Sub Mul Div Max Min Equal Greater Less GreaterOrEqual LessOrEqual"


@pytorch("(a.int() + b.int()).long() instead of a + b of int64")
@rule(
    f"{_INTEGER_OPS} -> {_INTEGER_OPS} Cast",
    Exactness.DOMAIN,
    domain=Domain(text="magnitudes below 32768", holds=_are_narrow),
    rank=10,
    source=executorch("qualcomm/_passes/i64_to_i32.py"),
)
def arithmetic_int32(at: Site) -> str:
    """Arithmetic of 64 bits in 32, constants narrowed beforehand, the result widened."""
    for slot in range(len(at.node.input)):
        at.demand_dtype(TensorProto.INT64, slot=slot)
    narrow = []
    for slot in range(len(at.node.input)):
        if at.is_constant(slot):
            at.demand(_are_narrow([at.value(slot)]), "a constant does not fit")
            narrow.append(at.constant(at.value(slot).astype(np.int32)))
        else:
            narrow.append(cast(at, at.input(slot), TensorProto.INT32))
    result = at.like(*narrow)
    return result if at.facts.dtype(at.node.output[0]) == TensorProto.BOOL else cast(at, result, TensorProto.INT64)


#: A wider range of float32 has no 255 steps that are numbers.
_NARROWEST, _WIDEST = 1e-30, 1e37


def _has_steps(values: Values) -> bool:
    """Whether a range has 255 steps that float32 tells apart; zeros alone have, too."""
    x = values[0]
    if x is None or not x.size or not bool(np.isfinite(x).all()):
        return False
    width = float(max(x.max(), 0)) - float(min(x.min(), 0))
    return width == 0 or _NARROWEST < width < _WIDEST


@pytorch("the model before its activations were quantised")
@rule(
    "DynamicQuantizeLinear -> ReduceMax ReduceMin Max Min Sub Div Equal Cast Add Clip Round Reshape",
    Exactness.DOMAIN,
    domain=Domain(text="no NaN or infinity; a range between 1e-30 and 1e37, or zeros", holds=_has_steps),
    rank=10,
    source=operator("DynamicQuantizeLinear"),
)
def dynamicquantize_parts(at: Site) -> tuple[str, ...]:
    """Scale and zero point of the range from the smallest number to the largest, 0 included; then the steps."""
    x, axes, zero = at.float32(), range(at.rank(0)), at.scalar(0)
    at.demand(0 not in at.shape(0), "a tensor is empty")
    highest = at.op("Max", reduce(at, "ReduceMax", x, axes, keepdims=False), zero)
    lowest = at.op("Min", reduce(at, "ReduceMin", x, axes, keepdims=False), zero)
    width = at.op("Sub", highest, lowest)
    some = at.op("Div", width, at.scalar(255))
    scale = at.op("Add", some, cast(at, at.op("Equal", width, zero), TensorProto.FLOAT))  # 1 where all is zero
    moved = clip(at, at.op("Div", at.op("Sub", zero, lowest), scale), 0, 255)
    offset = at.op("Round", moved)
    steps = at.op("Add", at.op("Round", at.op("Div", x, scale)), offset)
    return cast(at, clip(at, steps, 0, 255), TensorProto.UINT8), scale, cast(at, offset, TensorProto.UINT8)


#: Sums of integers up to this are exact in float32, in any order.
_EXACT_SUM = 1 << 24
#: Parts of a product of integers, of which each is exact.
_MOST_PARTS = 32


def _whole_numbers(at: Site, slot: int, column: bool = False) -> str:
    """An operand of integers less its zero point, as float32; one for each row, or of the second matrix each column."""
    at.demand_dtype(*_BYTES, slot=slot)
    number = cast(at, at.input(slot), TensorProto.FLOAT)
    if not at.has(slot + 2):
        return number
    dims, zero = at.shape(slot + 2), cast(at, at.input(slot + 2), TensorProto.FLOAT)
    at.demand(len(dims) < 2, "zero points for blocks")
    if dims not in ((), (1,)) and not column:
        zero = reshape(at, zero, [dims[0], 1])
    return at.op("Sub", number, zero)


def _largest(at: Site, slot: int) -> np.ndarray | int:
    """The magnitudes of an operand less its zero point, as far as they are known; one number where they are not."""
    if at.is_constant(slot) and (not at.has(slot + 2) or at.is_constant(slot + 2)):
        zero = at.value(slot + 2).astype(np.int64) if at.has(slot + 2) else np.int64(0)
        if zero.size == 1:
            magnitudes: np.ndarray = np.abs(at.value(slot).astype(np.int64) - zero.reshape(()))
            return magnitudes
    return 255


def _parts(weights: np.ndarray) -> list[int]:
    """Where to cut an axis so that each part's sum with numbers of 8 bits is exact; [terms, results] of magnitudes."""
    ends, sums = [0], np.zeros(weights.shape[1], np.int64)
    for number, row in enumerate(weights):
        if int((sums + row).max()) * 255 > _EXACT_SUM:
            ends.append(number)
            sums = np.zeros_like(sums)
        sums = sums + row
    return [*ends, len(weights)]


@pytorch("the model before it was quantised")
@rule(
    "MatMulInteger -> Cast Sub MatMul Slice Add Reshape",
    Exactness.EXACT,
    rank=10,
    source=operator("MatMulInteger"),
)
def matmulinteger_matmul(at: Site) -> str:
    """The integers less their zero points multiplied as floats, in parts whose sums float32 holds exactly."""
    left, right = at.shape(0), at.shape(1)
    at.demand(len(left) > 1 and len(right) > 1, "an operand is a vector")
    known = _largest(at, 1)
    depth = left[-1]
    at.demand(depth > 0, "a tensor is empty")
    magnitudes = np.full((depth, 1), 255) if isinstance(known, int) else np.moveaxis(known, -2, 0).reshape(depth, -1)
    ends = _parts(magnitudes)
    at.demand(len(ends) - 1 <= _MOST_PARTS, f"the product would be of more than {_MOST_PARTS} parts")
    a, b = _whole_numbers(at, 0), _whole_numbers(at, 1, column=True)
    whole = len(ends) == 2
    parts = [
        cast(
            at,
            at.op(
                "MatMul",
                a if whole else slice_axis(at, a, len(left) - 1, start, end),
                b if whole else slice_axis(at, b, len(right) - 2, start, end),
            ),
            TensorProto.INT32,
        )
        for start, end in pairwise(ends)
    ]
    return _added(at, parts)


@pytorch("the model before it was quantised")
@rule("ConvInteger -> Cast Sub Conv Slice Add", Exactness.EXACT, rank=10, source=operator("ConvInteger"))
def convinteger_conv(at: Site) -> str:
    """The integers less their zero points convolved as floats, in parts whose sums float32 holds exactly."""
    kernel = _largest(at, 1)
    at.demand(not isinstance(kernel, int), "the weights or their zero point are computed")
    weights = np.asarray(kernel)
    if at.attribute("group", 1) == 1:
        ends = _parts(weights.sum(axis=tuple(range(2, weights.ndim))).T)
    else:
        at.demand(int(weights.sum(axis=tuple(range(1, weights.ndim))).max()) * 255 <= _EXACT_SUM, "the sums are large")
        ends = [0, weights.shape[1]]
    at.demand(len(ends) - 1 <= _MOST_PARTS, f"the convolution would be of more than {_MOST_PARTS} parts")
    x = _whole_numbers(at, 0)
    at.demand(at.shape(2) in ((), (1,)) if at.has(2) else True, "a zero point for each row")
    zero = at.value(3).astype(np.float32).reshape(()) if at.has(3) else np.float32(0)
    signed = at.value(1).astype(np.float32) - zero
    parts = []
    for start, end in pairwise(ends):
        image = x if len(ends) == 2 else slice_axis(at, x, 1, start, end)
        part = at.like(image, at.constant(signed[:, start:end]), kind="Conv")
        parts.append(cast(at, part, TensorProto.INT32))
    return _added(at, parts)


def _added(at: Site, parts: list[str]) -> str:
    first, *rest = parts
    for part in rest:
        first = at.op("Add", first, part)
    return first
