"""Signs, sums and quotients by other arithmetic: Abs, Neg, Sub, Reciprocal, Div, Sign, Sum, Mean."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.model.declared_types import NARROW
from onnxbisect.rewrites.exactness import NO_NAN, SIGN_OF_ZERO, Bound, Domain, Values
from onnxbisect.rewrites.forms import cast, pairwise
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import FLOATS, INTEGERS, Site
from onnxbisect.rewrites.sources import operator, tidl

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
    at.demand_dtype(TensorProto.FLOAT)
    divisor = at.value(1)
    low, high = _DIVISORS
    at.demand(bool(np.all((np.abs(divisor) > low) & (np.abs(divisor) < high))), "the divisor is too small or large")
    return at.op("Mul", at.input(0), at.constant(np.float32(1) / divisor))


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


@pytorch("(x > 0).float() - (x < 0).float() instead of x.sign()")
@rule("Sign -> Greater Less Cast Sub", Exactness.DOMAIN, domain=NO_NAN, rank=31, source=operator("Sign"))
def sign_compare(at: Site) -> str:
    """1 where x is positive, minus 1 where it is negative."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    x, zero, dtype = at.input(0), at.scalar(0), at.dtype(0)
    above = cast(at, at.op("Greater", x, zero), dtype)
    return at.op("Sub", above, cast(at, at.op("Less", x, zero), dtype))


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
