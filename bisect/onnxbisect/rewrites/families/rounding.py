"""Ceil, Floor and the remainder of integers."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.forms import cast
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import INTEGERS, Site
from onnxbisect.rewrites.sources import executorch, operator


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
