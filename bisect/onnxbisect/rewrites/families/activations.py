"""Activations by others, by Clip, Sigmoid and Tanh, or by polynomials."""

from math import pi, sqrt

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import CONVERTER_FIX, ONNX2TF, SIGN_OF_ZERO, Bound, executorch, operator, pytorch, rule
from onnxbisect.rewrites.site import Site, clip, minus


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


@pytorch("x.clamp(min=0) instead of F.relu(x)")
@rule("Relu -> Max", Exactness.ROUNDING, SIGN_OF_ZERO, rank=2, source=operator("Relu"))
def relu_max(at: Site) -> str:
    """Max(x, 0)."""
    return at.op("Max", at.float32(), at.scalar(0))


@pytorch("x.clamp(0, 3.4e38) instead of F.relu(x)")
@rule("Relu -> Clip", Exactness.ROUNDING, SIGN_OF_ZERO, rank=2, source=operator("Relu"))
def relu_clip(at: Site) -> str:
    """Clip(x, 0, infinity)."""
    return clip(at, at.float32(), 0, np.inf)


@pytorch("torch.relu(x) - slope * torch.relu(-x) instead of F.leaky_relu(x, slope)")
@rule("LeakyRelu -> Relu Mul Sub", Exactness.ROUNDING, SIGN_OF_ZERO, rank=2, source=ONNX2TF)
def leakyrelu_relu(at: Site) -> str:
    """Relu(x) - alpha Relu(-x)."""
    x = at.float32()
    alpha = at.attribute("alpha", 0.01)
    at.demand(bool(np.isfinite(alpha)), "alpha is not finite")
    below = at.op("Mul", at.op("Relu", minus(at, x)), at.scalar(alpha))
    return at.op("Sub", at.op("Relu", x), below)


@pytorch("torch.maximum(x, slope * x) instead of F.leaky_relu(x, slope)")
@rule("LeakyRelu -> Mul Max", Exactness.EXACT, rank=2, source=operator("LeakyRelu"))
def leakyrelu_max(at: Site) -> str:
    """Max(x, alpha x), for an alpha between 0 and 1."""
    x = at.float32()
    alpha = at.attribute("alpha", 0.01)
    at.demand(1e-30 < alpha < 1, "alpha is not between 0 and 1")
    return at.op("Max", x, at.op("Mul", x, at.scalar(alpha)))


@pytorch("torch.relu(x) - slope * torch.relu(-x) instead of F.prelu(x, slope)")
@rule("PRelu -> Relu Mul Sub", Exactness.ROUNDING, SIGN_OF_ZERO, rank=2, source=ONNX2TF)
def prelu_relu(at: Site) -> str:
    """Relu(x) - slope Relu(-x)."""
    x = at.float32()
    at.demand(bool(np.isfinite(at.value(1)).all()), "a slope is not finite")
    return at.op("Sub", at.op("Relu", x), at.op("Mul", at.op("Relu", minus(at, x)), at.input(1)))


def _below(at: Site, x: str, stretch: float) -> str:
    """Exp(min(x, 0) * stretch) - 1, which is 0 where x is positive."""
    return at.op("Sub", at.op("Exp", at.op("Mul", at.op("Relu", minus(at, x)), at.scalar(-stretch))), at.scalar(1))


_OF_ALPHA = Bound(epsilons=2, of="alpha and the output together")


@pytorch("torch.relu(x) + alpha * (torch.exp(-torch.relu(-x)) - 1) instead of F.elu(x, alpha)")
@rule("Elu -> Mul Relu Exp Sub Add", Exactness.ROUNDING, _OF_ALPHA, rank=2, source=operator("Elu"))
def elu_exp(at: Site) -> str:
    """Relu(x) + alpha (Exp(-Relu(-x)) - 1)."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    return at.op("Add", at.op("Relu", x), at.op("Mul", _below(at, x, 1), at.scalar(alpha)))


@pytorch("torch.relu(x) + alpha * (torch.exp(-torch.relu(-x) / alpha) - 1) instead of F.celu(x, alpha)")
@rule(
    "Celu -> Mul Relu Exp Sub Add",
    Exactness.ROUNDING,
    Bound(epsilons=4, of="alpha and the output together"),
    rank=2,
    source=operator("Celu"),
)
def celu_exp(at: Site) -> str:
    """Relu(x) + alpha (Exp(-Relu(-x)/alpha) - 1)."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    at.demand(1e-3 < alpha < 1e3, "alpha is too small or large")
    return at.op("Add", at.op("Relu", x), at.op("Mul", _below(at, x, 1 / alpha), at.scalar(alpha)))


@pytorch("gamma * (torch.relu(x) + alpha * (torch.exp(-torch.relu(-x)) - 1)) instead of F.selu(x)")
@rule(
    "Selu -> Mul Relu Exp Sub Add",
    Exactness.ROUNDING,
    Bound(epsilons=4, of="gamma times alpha and the output together", note=SIGN_OF_ZERO.note),
    rank=2,
    source=operator("Selu"),
)
def selu_exp(at: Site) -> str:
    """gamma (Relu(x) + alpha (Exp(-Relu(-x)) - 1))."""
    x = at.float32()
    alpha, gamma = at.attribute("alpha", 1.67326319217681884765625), at.attribute("gamma", 1.05070102214813232421875)
    bent = at.op("Add", at.op("Relu", x), at.op("Mul", _below(at, x, 1), at.scalar(alpha)))
    return at.op("Mul", bent, at.scalar(gamma))


@pytorch("torch.where(x > alpha, x, 0) instead of F.threshold(x, alpha, 0)")
@rule("ThresholdedRelu -> Greater Where", Exactness.EXACT, rank=2, source=operator("ThresholdedRelu"))
def thresholdedrelu_where(at: Site) -> str:
    """x where it is above an alpha that is not negative, 0 elsewhere."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    at.demand(alpha >= 0, "alpha is negative: Where may make 0 of -0")
    return at.op("Where", at.op("Greater", x, at.scalar(alpha)), x, at.scalar(0))


#: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: the step of t, and the polynomial in t.
_STEP = 0.3275911
_TERMS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
#: tanh(x (a + b x²)) nearest to erf(x): |difference| at most 3.6e-4.
_ERF_TANH = (1.1283792, 0.1009115)
#: The same with a polynomial of degree 4 in x²: at most 2.9e-6 (minimax, by Lawson's iteration). All its values are
#: positive, so that it needs no limit for x.
_CLOSER = (1.1283581691, 0.1029329251, -4.96817298e-4, -4.1514062e-4, 3.22443778e-5)


@pytorch("Abramowitz and Stegun 7.1.26 instead of torch.erf(x)")
@rule("Erf -> Abs Mul Add Reciprocal Exp Sub Sign", Exactness.APPROXIMATE, Bound(absolute=7e-7), rank=6, source=ONNX2TF)
def erf_exp(at: Site) -> str:
    """1 minus a polynomial in 1/(1 + 0.3275911 |x|) times Exp(-x²), with the sign of x."""
    x = at.float32()
    size = at.op("Abs", x)
    t = at.op("Reciprocal", at.op("Add", at.op("Mul", size, at.scalar(_STEP)), at.scalar(1)))
    series = at.op("Mul", t, at.scalar(_TERMS[0]))
    for term in _TERMS[1:]:
        series = at.op("Mul", at.op("Add", series, at.scalar(term)), t)
    decay = at.op("Exp", at.op("Mul", at.op("Mul", size, size), at.scalar(-1)))
    return at.op("Mul", at.op("Sub", at.scalar(1), at.op("Mul", series, decay)), at.op("Sign", x))


@pytorch("torch.tanh(x * (1.1283792 + 0.1009115 * x * x)) instead of torch.erf(x)")
@rule("Erf -> Mul Add Tanh", Exactness.APPROXIMATE, Bound(absolute=4e-4), rank=6, source=operator("Erf"))
def erf_tanh(at: Site) -> str:
    """Tanh(x (1.1283792 + 0.1009115 x²))."""
    x = at.float32()
    linear, cubic = _ERF_TANH
    bend = at.op("Add", at.op("Mul", at.op("Mul", x, x), at.scalar(cubic)), at.scalar(linear))
    return at.op("Tanh", at.op("Mul", x, bend))


@pytorch("torch.tanh(x * p(x * x)), p a polynomial of degree 4, instead of torch.erf(x)")
@rule("Erf -> Mul Add Tanh", Exactness.APPROXIMATE, Bound(absolute=4e-6), rank=6, source=operator("Erf"))
def erf_tanh_closer(at: Site) -> str:
    """Tanh(x p(x²)), p a polynomial of degree 4."""
    x = at.float32()
    square = at.op("Mul", x, x)
    bend = at.scalar(_CLOSER[-1])
    for term in reversed(_CLOSER[:-1]):
        bend = at.op("Add", at.op("Mul", bend, square), at.scalar(term))
    return at.op("Tanh", at.op("Mul", x, bend))


def _exact_gelu(at: Site) -> str:
    at.demand(at.attribute("approximate", "none") == "none", "it is the tanh form already")
    return at.float32()


@pytorch("0.5 * x * (1 + torch.erf(x / 2 ** 0.5)) instead of F.gelu(x)")
@rule(
    "Gelu com.microsoft::Gelu -> Mul Erf Add",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the input"),
    rank=6,
    source=operator("Gelu"),
)
def gelu_erf(at: Site) -> str:
    """x/2 times 1 + Erf(x/sqrt 2)."""
    return erf_form(at, _exact_gelu(at))


def erf_form(at: Site, x: str) -> str:
    """Gelu as x/2 times 1 + Erf(x/sqrt 2)."""
    grown = at.op("Add", at.op("Erf", at.op("Mul", x, at.scalar(sqrt(0.5)))), at.scalar(1))
    return at.op("Mul", grown, at.op("Mul", x, at.scalar(0.5)))


def tanh_form(at: Site, x: str) -> str:
    """Gelu as x/2 times 1 + Tanh(sqrt(2/pi) (x + 0.044715 x³))."""
    cubic = at.op("Add", at.op("Mul", at.op("Mul", x, x), at.scalar(0.044715)), at.scalar(1))
    inner = at.op("Mul", at.op("Mul", x, cubic), at.scalar(sqrt(2 / pi)))
    return at.op("Mul", at.op("Add", at.op("Tanh", inner), at.scalar(1)), at.op("Mul", x, at.scalar(0.5)))


@pytorch('F.gelu(x, approximate="tanh") instead of F.gelu(x)')
@rule(
    "Gelu com.microsoft::Gelu -> Mul Add Tanh",
    Exactness.APPROXIMATE,
    Bound(absolute=4.8e-4),
    rank=6,
    source="https://github.com/sbryngelson/ANEForge/issues/76",
)
def gelu_tanh(at: Site) -> str:
    """The tanh form of the exact Gelu."""
    return tanh_form(at, _exact_gelu(at))


@pytorch("0.5 * x * (1 + torch.tanh(0.7978846 * x * (1 + 0.044715 * x * x)))")
@rule(
    "Gelu -> Mul Add Tanh",
    Exactness.ROUNDING,
    Bound(epsilons=6, of="the input"),
    rank=6,
    source="https://github.com/sbryngelson/ANEForge/issues/76",
)
def gelu_tanh_parts(at: Site) -> str:
    """The tanh form of Gelu as Mul, Add and Tanh."""
    at.demand(at.attribute("approximate", "none") == "tanh", "it is the exact form")
    return tanh_form(at, at.float32())
