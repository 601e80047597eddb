"""Rounding by other rounding, and the remainder of a division."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import SIGN_OF_ZERO, Domain, Values, executorch, operator, pytorch, rule
from onnxbisect.rewrites.site import INTEGERS, Site, cast


@pytorch("-torch.floor(-x) instead of x.ceil()")
@rule("Ceil -> Mul Floor", Exactness.EXACT, rank=42, source=operator("Ceil"))
def ceil_floor(at: Site) -> str:
    """-Floor(-x)."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    minus = at.scalar(-1)
    return at.op("Mul", at.op("Floor", at.op("Mul", at.input(0), minus)), minus)


@pytorch("r = x.round(); r - (r > x).float() instead of x.floor()")
@rule("Floor -> Round Greater Cast Sub", Exactness.EXACT, rank=42, source=operator("Round"))
def floor_round(at: Site) -> str:
    """Round, less one where that went up."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    near = at.op("Round", at.input(0))
    return at.op("Sub", near, cast(at, at.op("Greater", near, at.input(0)), at.dtype(0)))


@pytorch("f = x.floor(); f + ((x - f > 0.5) | (x - f == 0.5) & (f % 2 == 1)).float() instead of x.round()")
@rule(
    "Round -> Floor Sub Mul Greater Equal And Or Cast Add",
    Exactness.ROUNDING,
    SIGN_OF_ZERO,
    rank=42,
    source=operator("Floor"),
)
def round_floor(at: Site) -> str:
    """Floor, plus one where more than a half is left, or a half of an odd number."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    x, half = at.input(0), at.scalar(0.5)
    whole = at.op("Floor", x)
    rest = at.op("Sub", x, whole)
    halves = at.op("Mul", whole, half)
    odd = at.op("Greater", halves, at.op("Floor", halves))
    up = at.op("Or", at.op("Greater", rest, half), at.op("And", at.op("Equal", rest, half), odd))
    return at.op("Add", whole, cast(at, up, at.dtype(0)))


@pytorch("a - a // b * b instead of a % b")
@rule("Mod -> Div Mul Sub Add", Exactness.EXACT, rank=42, source=executorch("qualcomm/_passes/decompose_remainder.py"))
def mod_div(at: Site) -> str:
    """The remainder by a positive constant, in integers: the division truncates, so a negative rest is lifted."""
    at.demand_dtype(*INTEGERS)
    divisor = at.value(1)
    largest = np.iinfo(at.value_dtype(0)).max // 2
    at.demand(bool(np.all((divisor > 0) & (divisor < largest))), "the divisor is not positive, or too large")
    at.demand(at.attribute("fmod", 0) == 0, "the sign is that of the dividend")
    return _rest(at, at.op("Add", _rest(at, at.input(0)), at.input(1)))


def _rest(at: Site, dividend: str) -> str:
    """What truncating division leaves."""
    return at.op("Sub", dividend, at.op("Mul", at.op("Div", dividend, at.input(1)), at.input(1)))


def _are_far_from_the_ends(values: Values) -> bool:
    dividend, divisor = values[:2]
    if dividend is None or divisor is None or dividend.dtype.kind not in "iu" or not divisor.all():
        return False
    return all(bool((np.abs(it.astype(np.float64)) < 1 << 30).all()) for it in (dividend, divisor))


@pytorch("a - a // b * b, the rest lifted by b where its sign is another than b's, instead of a % b")
@rule(
    "Mod -> Div Mul Sub Add",
    Exactness.DOMAIN,
    rank=42,
    source=executorch("qualcomm/_passes/decompose_remainder.py"),
    domain=Domain(text="a divisor that is not 0; magnitudes below 2**30", holds=_are_far_from_the_ends),
)
def mod_div_any(at: Site) -> str:
    """The remainder by any divisor, in integers; twice, so that it has the divisor's sign."""
    at.demand_dtype(*INTEGERS)
    at.demand(at.attribute("fmod", 0) == 0, "the sign is that of the dividend")
    return _rest(at, at.op("Add", _rest(at, at.input(0)), at.input(1)))


@pytorch("x - y * (x / y).trunc() instead of torch.fmod(x, y), for a y of 1 or another power of two")
@rule("Mod -> Abs Mul Floor Sub Neg Less Where", Exactness.ROUNDING, SIGN_OF_ZERO, rank=42, source=operator("Mod"))
def mod_fmod(at: Site) -> str:
    """The rest of a division of magnitudes by a power of two, which no step rounds, with the sign of the dividend."""
    at.demand_dtype(TensorProto.FLOAT)
    divisor = np.abs(at.value(1))
    fraction, exponent = np.frexp(divisor)
    usual = (fraction == 0.5) & (exponent > 0) & (exponent < 64)
    at.demand(bool(usual.all()), "the divisor is no power of two between 1 and 2**62")
    size = at.op("Abs", at.input(0))
    whole = at.op("Floor", at.op("Mul", size, at.constant((1 / divisor).astype(np.float32))))
    rest = at.op("Sub", size, at.op("Mul", whole, at.constant(divisor.astype(np.float32))))
    return at.op("Where", at.op("Less", at.input(0), at.scalar(0)), at.op("Neg", rest), rest)
