"""Activations that bend at zero, as Relu, Max, Mul and Exp."""

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import SIGN_OF_ZERO, Bound
from onnxbisect.rewrites.forms import clip, minus
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import ONNX2TF, operator


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
