"""Where, comparisons, OneHot, logic on booleans, and guards against NaN and infinity."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import AI_HUB, NO_NAN, SIGN_OF_ZERO, Bound, Domain, operator, pytorch, rule
from onnxbisect.rewrites.site import INTEGERS, Site, cast, reshape

_LARGEST_MASK = 1 << 24


@pytorch("m * a + (1 - m) * b, m the mask as 0 and 1, instead of torch.where(mask, a, b)")
@rule(
    "Where -> Cast Mul Sub Add",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=Domain(
        text="no NaN or infinity in either branch",
        holds=lambda values: all(value is not None and bool(np.isfinite(value).all()) for value in values[1:]),
    ),
    rank=28,
    source=AI_HUB + "_shared/sam2/model_patches.py",
)
def where_arithmetic(at: Site) -> str:
    """m a + (1 - m) b, with the condition as a number m."""
    at.demand_dtype(TensorProto.FLOAT, slot=1)
    mask = cast(at, at.input(0), TensorProto.FLOAT)
    taken = at.op("Mul", mask, at.input(1))
    other = at.op("Sub", at.scalar(1, 1), mask)
    return at.op("Add", taken, at.op("Mul", other, at.input(2)))


@pytorch("mask.float().log() instead of torch.where(mask, 0.0, -torch.inf)")
@rule("Where -> Cast Sub Log Add", Exactness.EXACT, rank=28, source=AI_HUB + "_shared/sam2/model_patches.py")
def where_log(at: Site) -> str:
    """A mask of a number and minus infinity: the number plus the logarithm of the condition as 1 and 0."""
    at.demand_dtype(TensorProto.FLOAT, slot=1)
    masked = [slot for slot in (1, 2) if np.isneginf(at.value(slot)).all()]
    at.demand(len(masked) == 1, "it is not one branch that is minus infinity")
    number = at.value(3 - masked[0])
    at.demand(bool(np.isfinite(number).all()), "the other branch is not finite")
    at.demand(not (np.signbit(number) & (number == 0)).any(), "the other branch has a -0")
    at.demand(at.shape(0) == at.output_shape(), "the condition has not the shape of the result")
    kept = cast(at, at.input(0), TensorProto.FLOAT)
    if masked == [1]:
        kept = at.op("Sub", at.scalar(1, 1), kept)
    added = at.op("Log", kept)
    return at.op("Add", added, at.input(3 - masked[0])) if number.any() else added


@pytorch("the branch that is taken")
@rule(
    "Where -> Identity Expand",
    Exactness.ROUNDING,
    Bound(note="-0 stays, of which the Where of onnxruntime may make 0"),
    rank=8,
    source=operator("Where"),
)
def where_constant(at: Site) -> str:
    """The branch that a constant condition takes, where it takes one only."""
    condition = at.value(0)
    at.demand(condition.size > 0 and bool(condition.all() or not condition.any()), "both branches are taken")
    slot = 1 if condition.all() else 2
    shape, out = at.shape(slot), at.output_shape()
    return at.op("Identity", at.input(slot)) if shape == out else at.op("Expand", at.input(slot), at.integers(out))


@pytorch("attention without the guard torch.where(p.isnan(), 0, p)")
@rule("IsNaN ->", Exactness.DOMAIN, domain=NO_NAN, rank=35, source=operator("IsNaN"))
def isnan_false(at: Site) -> str:
    """A constant that says that nothing is NaN; Where behind it can then be folded."""
    shape = at.output_shape()
    at.demand(int(np.prod(shape)) <= _LARGEST_MASK, "the constant would be too large")
    return at.constant(np.zeros(shape, np.bool_))


@pytorch("~(x == x) instead of x.isnan()")
@rule("IsNaN -> Equal Not", Exactness.EXACT, rank=35, source=operator("Equal"))
def isnan_equal(at: Site) -> str:
    """What does not equal itself."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    return at.op("Not", at.op("Equal", at.input(0), at.input(0)))


@pytorch("x.abs() == torch.inf instead of x.isinf()")
@rule("IsInf -> Abs Equal", Exactness.EXACT, rank=35, source=operator("IsInf"))
def isinf_equal(at: Site) -> str:
    """What equals infinity, or of which the magnitude does."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    signs = bool(at.attribute("detect_positive", 1)), bool(at.attribute("detect_negative", 1))
    at.demand(any(signs), "it detects nothing")
    x = at.op("Abs", at.input(0)) if all(signs) else at.input(0)
    return at.op("Equal", x, at.scalar(np.inf if signs[0] else -np.inf))


@pytorch("torch.where(i[..., None] == torch.arange(n), on, off) instead of F.one_hot(i, n)")
@rule(
    "OneHot -> Reshape Equal Or Where Cast",
    Exactness.EXACT,
    rank=35,
    source="https://github.com/onnx/onnx-tensorrt/issues/869",
)
def onehot_equal(at: Site) -> str:
    """The places compared with a list of all, counted from the front and from the end."""
    at.demand_dtype(*INTEGERS)
    depth, (off, on) = int(at.value(1).reshape(())), at.value(2)
    at.demand(not any(np.signbit(it) and it == 0 for it in (off, on)), "a value is -0, of which Where may make 0")
    shape = list(at.output_shape())
    axis = at.axis(len(shape), -1)
    places = reshape(at, at.input(0), [*shape[:axis], 1, *shape[axis + 1 :]])
    counted = np.arange(depth, dtype=at.value_dtype(0)).reshape([depth, *[1] * (len(shape) - axis - 1)])
    front, end = (at.op("Equal", places, at.constant(list_)) for list_ in (counted, counted - depth))
    found = at.op("Or", front, end)
    if (off, on) == (0, 1):
        return cast(at, found, at.dtype(2))
    return at.op("Where", found, at.constant(np.asarray(on)), at.constant(np.asarray(off)))


@pytorch("torch.where(torch.arange(n)[:, None] == place, new, cache) instead of an update in place")
@rule(
    "TensorScatter -> Reshape Equal Where",
    Exactness.ROUNDING,
    SIGN_OF_ZERO,
    rank=28,
    source="https://github.com/onnxsim/onnxsim/pull/1468",
)
def tensorscatter_where(at: Site) -> str:
    """The new row of a cache where a list of all places equals its own, and the cache elsewhere."""
    shape, new = at.shape(0), at.shape(1)
    axis = at.axis(len(shape), -2)
    at.demand(new[axis] == 1, f"{new[axis]} rows are written")
    at.demand(at.attribute("mode", "linear") == "linear", "the cache is circular")
    at.demand(at.has(2), "it has no place")
    places = reshape(at, at.input(2), [shape[0], *[1] * (len(shape) - 1)])
    counted = np.arange(shape[axis], dtype=np.int64).reshape([-1, *[1] * (len(shape) - axis - 1)])
    return at.op("Where", at.op("Equal", places, at.constant(counted)), at.input(1), at.input(0))


@pytorch("torch.where(mask, x, 0) with a constant mask instead of x.triu() or x.tril()")
@rule("Trilu -> Where And", Exactness.ROUNDING, SIGN_OF_ZERO, rank=28, source=operator("Trilu"))
def trilu_where(at: Site) -> str:
    """Where a constant mask says so, and 0 elsewhere."""
    shape = at.shape(0)
    diagonal = int(at.value(1).reshape(())) if at.has(1) else 0
    taken = (np.triu if at.attribute("upper", 1) else np.tril)(np.ones(shape[-2:], np.bool_), diagonal)
    mask = at.constant(taken)
    if at.dtype(0) == TensorProto.BOOL:
        return at.op("And", at.input(0), mask)
    return at.op("Where", mask, at.input(0), at.scalar(0))


@pytorch("(a > b) | (a == b) instead of a >= b")
@rule(
    "GreaterOrEqual LessOrEqual -> Greater Less Equal Or", Exactness.EXACT, rank=28, source=operator("GreaterOrEqual")
)
def compare_or_equal(at: Site) -> str:
    """The strict comparison, or equality."""
    strict = "Greater" if at.node.op_type == "GreaterOrEqual" else "Less"
    a, b = at.input(0), at.input(1)
    return at.op("Or", at.op(strict, a, b), at.op("Equal", a, b))


@pytorch("b < a instead of a > b")
@rule(
    "Greater Less GreaterOrEqual LessOrEqual -> Greater Less GreaterOrEqual LessOrEqual",
    Exactness.EXACT,
    rank=28,
    source=operator("Less"),
)
def greater_less(at: Site) -> str:
    """The opposite comparison of the inputs in the other order."""
    turned = {"Greater": "Less", "Less": "Greater", "GreaterOrEqual": "LessOrEqual", "LessOrEqual": "GreaterOrEqual"}
    return at.op(turned[at.node.op_type], at.input(1), at.input(0))


@pytorch("a.int() == b.int() instead of a == b of two masks")
@rule("Equal -> Cast Equal", Exactness.EXACT, rank=28, source=operator("Equal"))
def equal_int32(at: Site) -> str:
    """Booleans compared as 0 and 1."""
    at.demand_dtype(TensorProto.BOOL)
    return at.op("Equal", *(cast(at, name, TensorProto.INT32) for name in at.inputs()))


@pytorch("mask.float().amax(dim).bool() instead of mask.any(dim)")
@rule("ReduceMax ReduceMin -> Cast ReduceMax ReduceMin Cast", Exactness.EXACT, rank=28, source=operator("ReduceMax"))
def reduce_bool(at: Site) -> str:
    """Whether any or all are true, of 0 and 1."""
    at.demand_dtype(TensorProto.BOOL)
    numbers = cast(at, at.input(0), TensorProto.FLOAT)
    return cast(at, at.like(numbers, *at.node.input[1:]), TensorProto.BOOL)


def _numbers(at: Site) -> list[str]:
    """The inputs, booleans, as 0 and 1."""
    return [cast(at, name, TensorProto.FLOAT) for name in at.inputs()]


@pytorch("(a.float() * b.float()).bool() instead of a & b")
@rule("And -> Cast Mul", Exactness.EXACT, rank=28, source=operator("And"))
def and_mul(at: Site) -> str:
    """The product of 0 and 1."""
    a, b = _numbers(at)
    return cast(at, at.op("Mul", a, b), TensorProto.BOOL)


@pytorch("torch.maximum(a.float(), b.float()).bool() instead of a | b")
@rule("Or -> Cast Max", Exactness.EXACT, rank=28, source=operator("Or"))
def or_max(at: Site) -> str:
    """The larger of 0 and 1."""
    a, b = _numbers(at)
    return cast(at, at.op("Max", a, b), TensorProto.BOOL)


@pytorch("(a.float() - b.float()).bool() instead of a ^ b")
@rule("Xor -> Cast Sub", Exactness.EXACT, rank=28, source=operator("Xor"))
def xor_sub(at: Site) -> str:
    """The difference of 0 and 1, which is none where they are equal."""
    a, b = _numbers(at)
    return cast(at, at.op("Sub", a, b), TensorProto.BOOL)


@pytorch("(1 - a.float()).bool() instead of ~a")
@rule("Not -> Cast Sub", Exactness.EXACT, rank=28, source=operator("Not"))
def not_sub(at: Site) -> str:
    """One less 0 or 1."""
    (a,) = _numbers(at)
    return cast(at, at.op("Sub", at.constant(np.array(1, np.float32)), a), TensorProto.BOOL)
