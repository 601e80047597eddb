"""Activations that bend at zero, as Relu, Max, Mul and Exp."""

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import SIGN_OF_ZERO, Bound
from onnxbisect.rewrites.forms import clip, minus
from onnxbisect.rewrites.rule import rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import ONNX2TF, operator


@rule(
    "relu-max",
    takes="Relu",
    gives="Max",
    exactness=Exactness.ROUNDING,
    bound=SIGN_OF_ZERO,
    rank=2,
    source=operator("Relu"),
    pytorch="x.clamp(min=0) instead of F.relu(x)",
)
def relu_max(at: Site) -> str:
    """Max(x, 0)."""
    return at.op("Max", at.float32(), at.scalar(0))


@rule(
    "relu-clip",
    takes="Relu",
    gives="Clip",
    exactness=Exactness.ROUNDING,
    bound=SIGN_OF_ZERO,
    rank=2,
    source=operator("Relu"),
    pytorch="x.clamp(0, 3.4e38) instead of F.relu(x)",
)
def relu_clip(at: Site) -> str:
    """Clip(x, 0, infinity)."""
    return clip(at, at.float32(), 0, np.inf)


@rule(
    "leakyrelu-relu",
    takes="LeakyRelu",
    gives="Relu Mul Sub",
    exactness=Exactness.ROUNDING,
    bound=SIGN_OF_ZERO,
    rank=2,
    source=ONNX2TF,
    pytorch="torch.relu(x) - slope * torch.relu(-x) instead of F.leaky_relu(x, slope)",
)
def leakyrelu_relu(at: Site) -> str:
    """Relu(x) - alpha Relu(-x)."""
    x = at.float32()
    alpha = at.attribute("alpha", 0.01)
    at.demand(bool(np.isfinite(alpha)), "alpha is not finite")
    below = at.op("Mul", at.op("Relu", minus(at, x)), at.scalar(alpha))
    return at.op("Sub", at.op("Relu", x), below)


@rule(
    "leakyrelu-max",
    takes="LeakyRelu",
    gives="Mul Max",
    exactness=Exactness.EXACT,
    rank=2,
    source=operator("LeakyRelu"),
    pytorch="torch.maximum(x, slope * x) instead of F.leaky_relu(x, slope)",
)
def leakyrelu_max(at: Site) -> str:
    """Max(x, alpha x), for an alpha between 0 and 1."""
    x = at.float32()
    alpha = at.attribute("alpha", 0.01)
    at.demand(1e-30 < alpha < 1, "alpha is not between 0 and 1")
    return at.op("Max", x, at.op("Mul", x, at.scalar(alpha)))


@rule(
    "prelu-relu",
    takes="PRelu",
    gives="Relu Mul Sub",
    exactness=Exactness.ROUNDING,
    bound=SIGN_OF_ZERO,
    rank=2,
    source=ONNX2TF,
    pytorch="torch.relu(x) - slope * torch.relu(-x) instead of F.prelu(x, slope)",
)
def prelu_relu(at: Site) -> str:
    """Relu(x) - slope Relu(-x)."""
    x = at.float32()
    at.demand(bool(np.isfinite(at.value(1)).all()), "a slope is not finite")
    return at.op("Sub", at.op("Relu", x), at.op("Mul", at.op("Relu", minus(at, x)), at.input(1)))


def _below(at: Site, x: str, stretch: float) -> str:
    """Exp(min(x, 0) * stretch) - 1, which is 0 where x is positive."""
    return at.op("Sub", at.op("Exp", at.op("Mul", at.op("Relu", minus(at, x)), at.scalar(-stretch))), at.scalar(1))


_OF_ALPHA = Bound(epsilons=2, of="alpha and the output together")


@rule(
    "elu-exp",
    takes="Elu",
    gives="Mul Relu Exp Sub Add",
    exactness=Exactness.ROUNDING,
    bound=_OF_ALPHA,
    rank=2,
    source=operator("Elu"),
    pytorch="torch.relu(x) + alpha * (torch.exp(-torch.relu(-x)) - 1) instead of F.elu(x, alpha)",
)
def elu_exp(at: Site) -> str:
    """Relu(x) + alpha (Exp(-Relu(-x)) - 1)."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    return at.op("Add", at.op("Relu", x), at.op("Mul", _below(at, x, 1), at.scalar(alpha)))


@rule(
    "celu-exp",
    takes="Celu",
    gives="Mul Relu Exp Sub Add",
    exactness=Exactness.ROUNDING,
    bound=Bound(epsilons=4, of="alpha and the output together"),
    rank=2,
    source=operator("Celu"),
    pytorch="torch.relu(x) + alpha * (torch.exp(-torch.relu(-x) / alpha) - 1) instead of F.celu(x, alpha)",
)
def celu_exp(at: Site) -> str:
    """Relu(x) + alpha (Exp(-Relu(-x)/alpha) - 1)."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    at.demand(1e-3 < alpha < 1e3, "alpha is too small or large")
    return at.op("Add", at.op("Relu", x), at.op("Mul", _below(at, x, 1 / alpha), at.scalar(alpha)))


@rule(
    "selu-exp",
    takes="Selu",
    gives="Mul Relu Exp Sub Add",
    exactness=Exactness.ROUNDING,
    bound=Bound(epsilons=4, of="gamma times alpha and the output together", note=SIGN_OF_ZERO.note),
    rank=2,
    source=operator("Selu"),
    pytorch="gamma * (torch.relu(x) + alpha * (torch.exp(-torch.relu(-x)) - 1)) instead of F.selu(x)",
)
def selu_exp(at: Site) -> str:
    """gamma (Relu(x) + alpha (Exp(-Relu(-x)) - 1))."""
    x = at.float32()
    alpha, gamma = at.attribute("alpha", 1.67326319217681884765625), at.attribute("gamma", 1.05070102214813232421875)
    bent = at.op("Add", at.op("Relu", x), at.op("Mul", _below(at, x, 1), at.scalar(alpha)))
    return at.op("Mul", bent, at.scalar(gamma))


@rule(
    "thresholdedrelu-where",
    takes="ThresholdedRelu",
    gives="Greater Where",
    exactness=Exactness.EXACT,
    rank=2,
    source=operator("ThresholdedRelu"),
    pytorch="torch.where(x > alpha, x, 0) instead of F.threshold(x, alpha, 0)",
)
def thresholdedrelu_where(at: Site) -> str:
    """x where it is above an alpha that is not negative, 0 elsewhere."""
    x = at.float32()
    alpha = at.attribute("alpha", 1.0)
    at.demand(alpha >= 0, "alpha is negative: Where may make 0 of -0")
    return at.op("Where", at.op("Greater", x, at.scalar(alpha)), x, at.scalar(0))


RULES = (
    relu_max,
    relu_clip,
    leakyrelu_relu,
    leakyrelu_max,
    prelu_relu,
    elu_exp,
    celu_exp,
    selu_exp,
    thresholdedrelu_where,
)
