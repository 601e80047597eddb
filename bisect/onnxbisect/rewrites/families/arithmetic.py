"""Arithmetic of single elements by other arithmetic: signs, sums, quotients, powers, Max, Min and Clip."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.model.session import NARROW
from onnxbisect.rewrites.rule import (
    NO_NAN,
    SIGN_OF_ZERO,
    Bound,
    Domain,
    Values,
    operator,
    pytorch,
    rule,
    tidl,
)
from onnxbisect.rewrites.site import FLOATS, INTEGERS, Site, cast, pairwise, rounded

#: Reciprocals of divisors between these are neither infinite nor denormal.
_DIVISORS = (1e-30, 1e30)


@pytorch("torch.relu(x) + torch.relu(-x) instead of x.abs()")
@rule("Abs -> Mul Relu Add", Exactness.EXACT, rank=31, source=tidl("eltwise.py"))
def abs_relu(at: Site) -> str:
    """Relu(x) + Relu(-x)."""
    at.demand_dtype(*FLOATS)
    x = at.input(0)
    return at.op("Add", at.op("Relu", x), at.op("Relu", at.op("Mul", x, at.scalar(-1))))


@pytorch("torch.maximum(x, -x) instead of x.abs()")
@rule("Abs -> Mul Max", Exactness.ROUNDING, SIGN_OF_ZERO, rank=31, source=operator("Abs"))
def abs_max(at: Site) -> str:
    """Max(x, -x)."""
    at.demand_dtype(*FLOATS)
    return at.op("Max", at.input(0), at.op("Mul", at.input(0), at.scalar(-1)))


@pytorch("x * -1 instead of -x")
@rule("Neg -> Mul", Exactness.EXACT, rank=31, source=tidl("eltwise.py"))
def neg_mul(at: Site) -> str:
    """Mul by -1."""
    at.demand_dtype(*FLOATS, *INTEGERS)
    return at.op("Mul", at.input(0), at.scalar(-1))


@pytorch("a + b * -1 instead of a - b")
@rule("Sub -> Mul Add", Exactness.EXACT, rank=31, source=tidl("eltwise.py"))
def sub_add(at: Site) -> str:
    """Add of the second input times -1; a constant one is negated beforehand."""
    at.demand_dtype(*FLOATS, *INTEGERS)
    if at.is_constant(1):
        return at.op("Add", at.input(0), at.constant(-at.value(1)))
    return at.op("Add", at.input(0), at.op("Mul", at.input(1), at.scalar(-1)))


@pytorch("1 / x instead of x.reciprocal()")
@rule("Reciprocal -> Div", Exactness.EXACT, rank=31, source=operator("Reciprocal"))
def reciprocal_div(at: Site) -> str:
    """One divided by x."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    return at.op("Div", at.scalar(1), at.input(0))


@pytorch("x * (1 / c) instead of x / c")
@rule("Div -> Mul", Exactness.ROUNDING, Bound(epsilons=1, absolute=1.5e-45), rank=31, source=operator("Div"))
def div_mul(at: Site) -> str:
    """Division by a constant as Mul by its reciprocal."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    divisor = np.asarray(at.value(1)).astype(np.float32)
    low, high = _DIVISORS
    at.demand(bool(np.all((np.abs(divisor) > low) & (np.abs(divisor) < high))), "the divisor is too small or large")
    with np.errstate(over="ignore"):
        reciprocal = np.asarray(np.float32(1) / divisor).astype(at.value_dtype(0))
    exact = bool(np.all(reciprocal.astype(np.float32) * divisor == 1))
    at.demand(exact or at.dtype(0) == TensorProto.FLOAT, "the type has no such reciprocal")
    return at.op("Mul", at.input(0), at.constant(reciprocal))


def _divides_well(values: Values) -> bool:
    divisor, (low, high) = values[1], _DIVISORS
    return divisor is not None and bool(np.all((np.abs(divisor) > low) & (np.abs(divisor) < high)))


@pytorch("a * b.reciprocal() instead of a / b")
@rule(
    "Div -> Reciprocal Mul",
    Exactness.DOMAIN,
    Bound(epsilons=2, absolute=1.5e-45),
    domain=Domain(text="the magnitude of no divisor below {:g} or above {:g}".format(*_DIVISORS), holds=_divides_well),
    rank=31,
    source=operator("Reciprocal"),
)
def div_reciprocal(at: Site) -> str:
    """Mul by the reciprocal of a divisor that is computed."""
    at.demand(not at.is_constant(1), "the divisor is a constant")
    return at.op("Mul", at.float32(), at.op("Reciprocal", at.input(1)))


def _compared(at: Site) -> str:
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    x, zero, dtype = at.input(0), at.scalar(0), at.dtype(0)
    above = cast(at, at.op("Greater", x, zero), dtype)
    return at.op("Sub", above, cast(at, at.op("Less", x, zero), dtype))


@pytorch("(x > 0).float() - (x < 0).float() instead of x.sign()")
@rule("Sign -> Greater Less Cast Sub", Exactness.DOMAIN, domain=NO_NAN, rank=31, source=operator("Sign"))
def sign_compare(at: Site) -> str:
    """1 where x is positive, minus 1 where it is negative."""
    return _compared(at)


@pytorch("torch.where(x == x, (x > 0).float() - (x < 0).float(), x) instead of x.sign()")
@rule("Sign -> Greater Less Cast Sub Equal Where", Exactness.EXACT, rank=31, source=operator("Sign"))
def sign_where(at: Site) -> str:
    """1 where x is positive, minus 1 where it is negative, and NaN where it is that."""
    signs, x = _compared(at), at.input(0)
    return at.op("Where", at.op("Equal", x, x), signs, x)


@pytorch("a + b + c")
@rule("Sum -> Add", Exactness.EXACT, rank=31, source=operator("Sum"))
def sum_add(at: Site) -> str:
    """A chain of Add."""
    terms = len(at.inputs())
    at.demand(terms > 1, "there is one input")
    at.demand(terms == 2 or at.dtype(0) not in NARROW, "in this type each Add would round")
    return pairwise(at, "Add")


@pytorch("(a + b + c) * (1 / 3)")
@rule("Mean -> Add Mul", Exactness.ROUNDING, Bound(epsilons=1, absolute=1.5e-45), rank=31, source=tidl("eltwise.py"))
def mean_add(at: Site) -> str:
    """A chain of Add, times one by the number of inputs."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(len(at.inputs()) > 1, "there is one input")
    return at.op("Mul", pairwise(at, "Add"), at.scalar(1 / len(at.inputs())))


@pytorch("model.eval() before the export")
@rule("Dropout -> Identity", Exactness.EXACT, rank=23, source=operator("Dropout"))
def dropout_identity(at: Site) -> tuple[str, ...]:
    """Dropout does nothing at inference, and its mask keeps everything."""
    at.demand(not at.has(2) or not bool(at.value(2)), "it is in training mode")
    same = at.op("Identity", at.input(0))
    if len([name for name in at.node.output if name]) == 1:
        return (same,)
    at.demand(at.opset >= 12, "what the mask holds was not defined before operator set 12")
    return same, at.constant(np.ones(at.output_shape(), np.bool_))


_HIGHEST_POWER = 8


@pytorch("x * x instead of x ** 2")
@rule("Pow -> Mul", Exactness.ROUNDING, Bound(epsilons=4, absolute=1e-37), rank=31, source=operator("Pow"))
def pow_mul(at: Site) -> str:
    """A small whole exponent: x times itself."""
    at.demand_dtype(TensorProto.FLOAT)
    exponent = at.value(1)
    at.demand(exponent.size == 1 and exponent.ndim <= at.rank(0), "the exponent is no scalar")
    count = float(exponent.ravel()[0])
    at.demand(count.is_integer() and 2 <= count <= _HIGHEST_POWER, f"the exponent is {count:g}")
    power, square, left = None, at.input(0), int(count)
    while left:
        if left % 2:
            power = square if power is None else at.op("Mul", power, square)
        left //= 2
        square = at.op("Mul", square, square) if left else square
    return at.known(power, "the exponent is 0")


def _root(at: Site, exponent: float) -> None:
    at.demand_dtype(TensorProto.FLOAT)
    value = at.value(1)
    at.demand(value.size == 1 and value.ndim <= at.rank(0), "the exponent is no scalar")
    at.demand(float(value.ravel()[0]) == exponent, f"the exponent is not {exponent:g}")


_NOT_NEGATIVE = Domain(
    text="no negative input, nor -0",
    holds=lambda values: values[0] is not None and not bool(np.signbit(values[0]).any()),
)


@pytorch("x.sqrt() instead of x ** 0.5")
@rule("Pow -> Sqrt", Exactness.DOMAIN, Bound(epsilons=1), domain=_NOT_NEGATIVE, rank=31, source=operator("Sqrt"))
def pow_sqrt(at: Site) -> str:
    """The exponent 0.5 as Sqrt."""
    _root(at, 0.5)
    return at.op("Sqrt", at.input(0))


@pytorch("1 / x.sqrt() instead of x ** -0.5")
@rule(
    "Pow -> Sqrt Reciprocal",
    Exactness.DOMAIN,
    Bound(epsilons=2),
    domain=_NOT_NEGATIVE,
    rank=31,
    source=operator("Sqrt"),
)
def pow_reciprocal_sqrt(at: Site) -> str:
    """The exponent -0.5 as one by the square root."""
    _root(at, -0.5)
    return at.op("Reciprocal", at.op("Sqrt", at.input(0)))


@pytorch("x ** 0.5 instead of x.sqrt()")
@rule("Sqrt -> Pow", Exactness.DOMAIN, Bound(epsilons=1), domain=_NOT_NEGATIVE, rank=31, source=operator("Pow"))
def sqrt_pow(at: Site) -> str:
    """The power 0.5."""
    at.demand_dtype(TensorProto.FLOAT)
    return at.op("Pow", at.input(0), at.scalar(0.5))


#: Values up to this do not overflow in a sum or difference of two.
_FAR_FROM_OVERFLOW = 1e37


@pytorch("torch.maximum(torch.maximum(a, b), c)")
@rule("Max Min -> Max Min", Exactness.EXACT, rank=31, source=operator("Max"))
def max_pairs(at: Site) -> str:
    """More than two inputs, two at a time."""
    at.demand(len(at.inputs()) > 2, "there are no more than two inputs")
    return pairwise(at, at.node.op_type)


_OTHER_END = {"Max": "Min", "Min": "Max"}


@pytorch("-torch.maximum(-a, -b) instead of torch.minimum(a, b)")
@rule("Max Min -> Mul Sub Max Min", Exactness.ROUNDING, SIGN_OF_ZERO, rank=31, source=operator("Min"))
def max_min(at: Site) -> str:
    """-Min(-a, -b) or -Max(-a, -b); of integers with -1 - x for -x."""
    at.demand_dtype(*FLOATS, *INTEGERS)
    at.demand(len(at.inputs()) > 1, "there is one input")
    kind, whole, last = _OTHER_END[at.node.op_type], at.dtype(0) in INTEGERS, at.scalar(-1)

    def turned(tensor: str) -> str:
        return at.op("Sub", last, tensor) if whole else at.op("Mul", tensor, last)

    return turned(at.op(kind, *map(turned, at.inputs())))


_SMALL = Domain(
    text="no NaN; magnitudes below 1e37",
    holds=lambda values: all(
        value is not None and bool(np.all(np.abs(value) < _FAR_FROM_OVERFLOW)) for value in values
    ),
)


@pytorch("torch.relu(a - b) + b instead of torch.maximum(a, b)")
@rule(
    "Max -> Sub Relu Add",
    Exactness.DOMAIN,
    Bound(epsilons=1, of="the larger magnitude of the two inputs"),
    domain=_SMALL,
    rank=31,
    source=operator("Max"),
)
def max_relu(at: Site) -> str:
    """Relu(a - b) + b, of two inputs."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(len(at.inputs()) == 2, "there are not two inputs")
    return at.op("Add", at.op("Relu", at.op("Sub", at.input(0), at.input(1))), at.input(1))


@pytorch("a - torch.relu(a - b) instead of torch.minimum(a, b)")
@rule(
    "Min -> Sub Relu",
    Exactness.DOMAIN,
    Bound(epsilons=1, of="the larger magnitude of the two inputs"),
    domain=_SMALL,
    rank=31,
    source=operator("Min"),
)
def min_relu(at: Site) -> str:
    """a - Relu(a - b), of two inputs."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(len(at.inputs()) == 2, "there are not two inputs")
    return at.op("Sub", at.input(0), at.op("Relu", at.op("Sub", at.input(0), at.input(1))))


def _limits(at: Site) -> tuple[float | None, float | None]:
    """The constant bounds of a Clip, None for one that is left out."""
    if at.opset < 11:
        return (
            at.attribute("min", 0.0) if at.has_attribute("min") else None,
            at.attribute("max", 0.0) if at.has_attribute("max") else None,
        )
    low, high = (float(at.value(slot)) if at.has(slot) else None for slot in (1, 2))
    at.demand(low is None or high is None or low <= high, "the lower limit is above the upper one")
    return low, high


@pytorch("torch.minimum(torch.maximum(x, low), high) instead of x.clamp(low, high)")
@rule("Clip -> Max Min", Exactness.EXACT, rank=31, source=operator("Clip"))
def clip_max_min(at: Site) -> str:
    """Max with the lower and Min with the upper limit."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    low, high = _limits(at)
    # a limit that is left out is the largest finite number, so that infinity does not pass
    largest = float(np.finfo(at.value_dtype(0)).max)
    low, high = -largest if low is None else low, largest if high is None else high
    at.demand(0.0 not in (low, high), "of 0 and -0, Max and Min may take the other")
    return at.op("Min", at.op("Max", at.input(0), at.scalar(low)), at.scalar(high))


@pytorch("torch.minimum(torch.maximum(x, low), high) instead of x.clamp(low, high)")
@rule(
    "Clip -> Max Min",
    Exactness.ROUNDING,
    Bound(note="the sign of zero may differ; a limit that is NaN makes NaN, as ONNX defines it"),
    rank=31,
    source=operator("Clip"),
)
def clip_max_min_any(at: Site) -> str:
    """Max with the lower and Min with the upper limit, which may be zero or computed."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    largest = float(np.finfo(at.value_dtype(0)).max)
    if at.opset < 11:
        low, high = _limits(at)
        tensors = [at.scalar(-largest if low is None else low), at.scalar(largest if high is None else high)]
    else:
        ends = ((1, -largest), (2, largest))
        tensors = [at.input(slot) if at.has(slot) else at.scalar(end) for slot, end in ends]
    return at.op("Min", at.op("Max", at.input(0), tensors[0]), tensors[1])


@pytorch("high - torch.relu(high - low - torch.relu(x - low)) instead of x.clamp(low, high)")
@rule(
    "Clip -> Sub Relu Add",
    Exactness.ROUNDING,
    Bound(epsilons=1.5, of="the magnitudes of the two limits together", note="the sign of zero may differ"),
    rank=31,
    source=operator("Clip"),
)
def clip_relu(at: Site) -> str:
    """high - Relu(high - low - Relu(x - low)), which stays finite at infinity."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.FLOAT16)
    low, high = _limits(at)
    at.demand(low is not None and high is not None, "a limit is left out")
    low, high = at.known(low, "no lower limit"), at.known(high, "no upper limit")
    at.demand(max(abs(low), abs(high)) < np.finfo(at.value_dtype(0)).max / 16, "a limit is too large")
    x = at.input(0)
    above = at.op("Relu", at.op("Sub", x, at.scalar(low)) if low else x)
    short = at.op("Relu", at.op("Sub", at.scalar(rounded(high - low, at)), above))
    return at.op("Sub", at.scalar(high), short)


@pytorch("(x - mean) * scale, with the scaler's numbers as buffers of the model")
@rule(
    "ai.onnx.ml::Scaler -> Cast Sub Mul",
    Exactness.EXACT,
    rank=6,
    source="https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html",
)
def scaler_arithmetic(at: Site) -> str:
    """Minus the offset, times the scale, as the scalers of scikit-learn are exported."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64)
    offset, scale = (np.array(at.attribute(name, [0.0]), np.float32) for name in ("offset", "scale"))
    x = at.input(0) if at.dtype(0) == TensorProto.FLOAT else cast(at, at.input(0), TensorProto.FLOAT)
    return at.op("Mul", at.op("Sub", x, at.constant(offset)), at.constant(scale))
