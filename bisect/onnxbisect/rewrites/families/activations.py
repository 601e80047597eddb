"""Activations that saturate, as Mul, Add, Clip, Sigmoid, Tanh, Exp and Log."""

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound
from onnxbisect.rewrites.forms import clip, minus
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import CONVERTER_FIX, executorch, operator


@pytorch("x * F.hardsigmoid(x) instead of F.hardswish(x)")
@rule("HardSwish -> HardSigmoid Mul", Exactness.EXACT, rank=2, source=operator("HardSwish"))
def hardswish_hardsigmoid(at: Site) -> str:
    """x times HardSigmoid(x)."""
    x = at.float32()
    return at.op("Mul", x, at.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


@pytorch("x * (x * (1 / 6) + 0.5).clamp(0, 1) instead of F.hardswish(x)")
@rule("HardSwish -> Mul Add Clip", Exactness.EXACT, rank=2, source=CONVERTER_FIX)
def hardswish_clip(at: Site) -> str:
    """x times Clip(x/6 + 1/2, 0, 1)."""
    x = at.float32()
    line = at.op("Add", at.op("Mul", x, at.scalar(1 / 6)), at.scalar(0.5))
    return at.op("Mul", x, clip(at, line, 0.0, 1.0))


@pytorch("x * (F.relu6(x + 3) / 6) instead of F.hardswish(x)")
@rule(
    "HardSwish -> Add Clip Div Mul", Exactness.ROUNDING, Bound(epsilons=2, of="the input"), rank=2, source=CONVERTER_FIX
)
def hardswish_relu6(at: Site) -> str:
    """x times Clip(x + 3, 0, 6)/6, which compilers know as ReLU6."""
    x = at.float32()
    return at.op("Mul", x, at.op("Div", clip(at, at.op("Add", x, at.scalar(3)), 0.0, 6.0), at.scalar(6)))


@pytorch("(x * (1 / 6) + 0.5).clamp(0, 1) instead of F.hardsigmoid(x)")
@rule("HardSigmoid -> Mul Add Clip", Exactness.EXACT, rank=2, source=CONVERTER_FIX)
def hardsigmoid_clip(at: Site) -> str:
    """Clip(alpha x + beta, 0, 1)."""
    x = at.float32()
    alpha, beta = at.attribute("alpha", 0.2), at.attribute("beta", 0.5)
    at.demand(alpha != 0, "alpha is 0")
    return clip(at, at.op("Add", at.op("Mul", x, at.scalar(alpha)), at.scalar(beta)), 0.0, 1.0)


@pytorch("x * torch.sigmoid(x) instead of F.silu(x)")
@rule("Swish -> Mul Sigmoid", Exactness.EXACT, rank=2, source=operator("Swish"))
def swish_sigmoid(at: Site) -> str:
    """x times Sigmoid(alpha x)."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    return at.op("Mul", x, at.op("Sigmoid", x if alpha == 1 else at.op("Mul", x, at.scalar(alpha))))


@pytorch("x * torch.tanh(F.softplus(x)) instead of F.mish(x)")
@rule("Mish -> Softplus Tanh Mul", Exactness.EXACT, rank=2, source=CONVERTER_FIX)
def mish_softplus(at: Site) -> str:
    """x times Tanh(Softplus(x))."""
    x = at.float32()
    return at.op("Mul", x, at.op("Tanh", at.op("Softplus", x)))


@pytorch("torch.relu(x) + torch.log(1 + torch.exp(-x.abs())) instead of F.softplus(x)")
@rule(
    "Softplus -> Mul Abs Exp Add Log Relu",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="1 and the output together"),
    rank=2,
    source=operator("Softplus"),
)
def softplus_exp(at: Site) -> str:
    """Relu(x) + Log(1 + Exp(-|x|)), whose exponential does not overflow."""
    x = at.float32()
    grown = at.op("Add", at.op("Exp", minus(at, at.op("Abs", x))), at.scalar(1))
    return at.op("Add", at.op("Relu", x), at.op("Log", grown))


@pytorch("x / (1 + x.abs()) instead of F.softsign(x)")
@rule("Softsign -> Abs Add Div", Exactness.ROUNDING, Bound(epsilons=3), rank=2, source=operator("Softsign"))
def softsign_div(at: Site) -> str:
    """x / (1 + |x|)."""
    x = at.float32()
    return at.op("Div", x, at.op("Add", at.op("Abs", x), at.scalar(1)))


@pytorch("2 * torch.sigmoid(2 * x) - 1 instead of x.tanh()")
@rule(
    "Tanh -> Mul Sigmoid Sub", Exactness.ROUNDING, Bound(epsilons=4, of="1"), rank=2, source=executorch("arm/_passes")
)
def tanh_sigmoid(at: Site) -> str:
    """2 Sigmoid(2x) - 1."""
    x, two = at.float32(), at.scalar(2)
    return at.op("Sub", at.op("Mul", at.op("Sigmoid", at.op("Mul", x, two)), two), at.scalar(1))


@pytorch("0.5 * torch.tanh(0.5 * x) + 0.5 instead of x.sigmoid()")
@rule("Sigmoid -> Mul Tanh Add", Exactness.ROUNDING, Bound(epsilons=2, of="1"), rank=2, source=operator("Sigmoid"))
def sigmoid_tanh(at: Site) -> str:
    """Tanh(x/2)/2 + 1/2."""
    x, half = at.float32(), at.scalar(0.5)
    return at.op("Add", at.op("Mul", at.op("Tanh", at.op("Mul", x, half)), half), half)


@pytorch("1 / (1 + torch.exp(-x)) instead of x.sigmoid()")
@rule(
    "Sigmoid -> Mul Exp Add Reciprocal",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="1"),
    rank=2,
    source=operator("Sigmoid"),
)
def sigmoid_exp(at: Site) -> str:
    """1 / (1 + Exp(-x))."""
    return at.op("Reciprocal", at.op("Add", at.op("Exp", minus(at, at.float32())), at.scalar(1)))
