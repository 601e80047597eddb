"""Hyperbolic functions and their inverses by exponentials and logarithms that lose no digits near zero."""

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import SIGN_OF_ZERO, Bound, operator, pytorch, rule
from onnxbisect.rewrites.site import Site

#: Beyond this asinh and acosh are log(2x) in float32, and up to it a square is far from infinite.
_FAR = 2.0**13
_LOG1P = "https://www.plunk.org/~hatch/rightway.html"


def _exponentials(at: Site, x: str) -> tuple[str, str]:
    """Half of Exp(x) and of Exp(-x), as squares of Exp of half as much: neither is infinite before the sum is."""
    half = at.scalar(0.5)
    grown, shrunk = (at.op("Exp", at.op("Mul", x, at.scalar(factor))) for factor in (0.5, -0.5))
    return at.op("Mul", grown, at.op("Mul", grown, half)), at.op("Mul", shrunk, at.op("Mul", shrunk, half))


@pytorch("(x.exp() + (-x).exp()) / 2 instead of x.cosh()")
@rule("Cosh -> Mul Exp Add", Exactness.ROUNDING, Bound(epsilons=4), rank=20, source=operator("Cosh"))
def cosh_exp(at: Site) -> str:
    """Half of Exp(x) + Exp(-x)."""
    return at.op("Add", *_exponentials(at, at.float32()))


@pytorch("x.tanh() * (x.exp() + (-x).exp()) / 2 instead of x.sinh()")
@rule(
    "Sinh -> Tanh Mul Exp Add", Exactness.ROUNDING, Bound(epsilons=6, absolute=1e-40), rank=20, source=operator("Sinh")
)
def sinh_tanh(at: Site) -> str:
    """Tanh(x) times half of Exp(x) + Exp(-x), which is as near for small numbers as for large ones."""
    x = at.float32()
    return at.op("Mul", at.op("Tanh", x), at.op("Add", *_exponentials(at, x)))


@pytorch("(x.exp() - (-x).exp()) / 2 instead of x.sinh()")
@rule(
    "Sinh -> Mul Exp Sub",
    Exactness.ROUNDING,
    Bound(epsilons=4, of="1 and the output together", note=SIGN_OF_ZERO.note),
    rank=20,
    source=operator("Sinh"),
)
def sinh_exp(at: Site) -> str:
    """Half of Exp(x) - Exp(-x)."""
    return at.op("Sub", *_exponentials(at, at.float32()))


def _log_of_one_and(at: Site, u: str) -> str:
    """Log(1 + u) of a u that is not negative, plus what of u is lost where 1 is added to it: all of it if u is tiny."""
    one = at.scalar(1)
    small = at.op("Min", u, one)
    lost = at.op("Sub", small, at.op("Sub", at.op("Add", small, one), one))
    return at.op("Add", at.op("Log", at.op("Add", u, one)), lost)


def _far(at: Site, x: str) -> str:
    """How many times x is _FAR, as a logarithm; 0 up to there."""
    return at.op("Log", at.op("Mul", at.op("Max", x, at.scalar(_FAR)), at.scalar(1 / _FAR)))


_OF_OUTPUT = Bound(epsilons=4, note=SIGN_OF_ZERO.note)


@pytorch("x.sign() * torch.log1p(a + a * a / (1 + (a * a + 1).sqrt())), a = x.abs(), instead of x.asinh()")
@rule(
    "Asinh -> Abs Min Mul Add Sqrt Div Log Sub Max Sign",
    Exactness.ROUNDING,
    _OF_OUTPUT,
    rank=20,
    source=_LOG1P,
)
def asinh_log(at: Site) -> str:
    """Log(1 + u) of |x| + x²/(1 + Sqrt(x² + 1)), corrected by what of u is lost in 1 + u, with the sign of x."""
    x, one = at.float32(), at.scalar(1)
    size = at.op("Abs", x)
    near = at.op("Min", size, at.scalar(_FAR))
    square = at.op("Mul", near, near)
    bend = at.op("Div", square, at.op("Add", at.op("Sqrt", at.op("Add", square, one)), one))
    found = at.op("Add", _log_of_one_and(at, at.op("Add", near, bend)), _far(at, size))
    return at.op("Mul", found, at.op("Sign", x))


@pytorch("t = x - 1; torch.log1p(t + t.sqrt() * (t + 2).sqrt()) instead of x.acosh()")
@rule(
    "Acosh -> Min Sub Add Sqrt Mul Log Max",
    Exactness.ROUNDING,
    Bound(epsilons=4),
    rank=20,
    source=_LOG1P,
)
def acosh_log(at: Site) -> str:
    """Log(1 + u) of t + Sqrt(t) Sqrt(t + 2), t = x - 1, corrected by what of u is lost in 1 + u."""
    x = at.float32()
    t = at.op("Sub", at.op("Min", x, at.scalar(_FAR)), at.scalar(1))
    root = at.op("Mul", at.op("Sqrt", t), at.op("Sqrt", at.op("Add", t, at.scalar(2))))
    return at.op("Add", _log_of_one_and(at, at.op("Add", t, root)), _far(at, x))


@pytorch("x.sign() / 2 * torch.log1p(2 * a / (1 - a)), a = x.abs(), instead of x.atanh()")
@rule(
    "Atanh -> Abs Add Sub Div Min Log Mul Sign",
    Exactness.ROUNDING,
    _OF_OUTPUT,
    rank=20,
    source=_LOG1P,
)
def atanh_log(at: Site) -> str:
    """Half of Log(1 + u) of 2|x|/(1 - |x|), corrected by what of u is lost in 1 + u, with the sign of x."""
    x = at.float32()
    size = at.op("Abs", x)
    found = _log_of_one_and(at, at.op("Div", at.op("Add", size, size), at.op("Sub", at.scalar(1), size)))
    return at.op("Mul", at.op("Mul", found, at.scalar(0.5)), at.op("Sign", x))
