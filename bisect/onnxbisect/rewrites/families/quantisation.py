"""QuantizeLinear and DequantizeLinear as arithmetic, and integers in a narrower type."""

import numpy as np
from onnx import TensorProto, helper

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import NO_NAN, Domain, Values
from onnxbisect.rewrites.forms import cast, clip, reshape
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import executorch, operator

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
