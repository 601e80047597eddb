"""Pow and Sqrt by one another and by Mul."""

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound, Domain, Values
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import operator

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


def _above(least: float) -> Callable[[Values], bool]:
    def holds(values: Values) -> bool:
        return values[0] is not None and not bool(np.any(values[0] < least) or np.any(np.signbit(values[0])))

    return holds


_NOT_NEGATIVE = Domain(text="no negative input, nor -0", holds=_above(0.0))


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
