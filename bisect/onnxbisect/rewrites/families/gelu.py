"""Erf and Gelu by Tanh, by Exp, and by one another."""

from math import pi, sqrt

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import ONNX2TF, operator

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
