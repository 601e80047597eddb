"""Trigonometric functions by one another and by polynomials; hyperbolic ones by exponentials and logarithms.

The latter lose no digits near zero.
"""

from collections.abc import Iterable
from math import pi

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import SIGN_OF_ZERO, Bound, Domain, Values, executorch, operator, pytorch, rule
from onnxbisect.rewrites.site import Site, clip

#: sin(r)/r as a polynomial in r², the highest power last: within 3.4e-9 up to a quarter turn, within 1.3e-9 up to half
#: a turn (minimax, by Lawson's iteration).
_QUARTER = (
    0.9999999765898379,
    -0.16666647634617177,
    0.00833289982302414,
    -0.0001980089774512167,
    2.590488468734442e-06,
)
_HALF = (
    0.9999999945247819,
    -0.16666664585636445,
    0.008333310430112699,
    -0.00019840156797369362,
    2.7529480238104587e-06,
    -2.4677190662431014e-08,
    1.345219491355465e-10,
)
#: Where the argument is mirrored, in quarter turns for Sin and half turns for Cos. Each is at least a third of the one
#: before, and near a bfloat16 number (22 is nearly 7 pi), because targets hold constants in their own type.
_SINE_FOLDS, _COSINE_FOLDS = (21, 7, 3, 1), (7, 4, 2, 1)
_SINE_REACH = float(np.float32(3 * _SINE_FOLDS[0] * pi / 2))
_COSINE_REACH = float(np.float32(3 * _COSINE_FOLDS[0] * pi))
#: Pi in three parts, of which the first two have few enough bits that whole numbers up to 8192 times them are exact
#: (Cody and Waite; the constants are those of Cephes for a quarter of pi, times four).
_PI = (3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7)
_FARTHEST = 1000.0
#: atan(t)/t - 1 for t up to 1 as a polynomial in t² without its constant term: within 2e-8 (Abramowitz and Stegun,
#: Handbook of Mathematical Functions, 4.4.49).
_ATAN = (
    -0.3333314528,
    0.1999355085,
    -0.1420889944,
    0.1065626393,
    -0.0752896400,
    0.0429096138,
    -0.0161657367,
    0.0028662257,
)
#: The same of asin(r)/r - 1 for r up to 1/2 (Cephes, asinf).
_ASIN = (1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2)
_CEPHES_ASIN = "https://www.netlib.org/cephes/"
#: Of the sum of the input and a quarter turn, which rounds.
_SHIFTED = Bound(
    epsilons=1,
    of="the input and 2 together",
    note="from magnitudes of 2046 on more than 1e-4, and then not proven",
)
#: Beyond this asinh and acosh are log(2x) in float32, and up to it a square is far from infinite.
_FAR = 2.0**13
_LOG1P = "https://www.plunk.org/~hatch/rightway.html"


def _within(limit: float) -> Domain:
    def holds(values: Values) -> bool:
        return values[0] is not None and bool((np.abs(values[0]) <= limit).all())

    return Domain(text=f"magnitudes up to {limit:.6g}; the sign of zero may differ", holds=holds)


def _polynomial(at: Site, square: str, terms: tuple[float, ...]) -> str:
    sum_ = at.scalar(terms[-1])
    for term in reversed(terms[:-1]):
        sum_ = at.op("Add", at.op("Mul", sum_, square), at.scalar(term))
    return sum_


def _series(at: Site, r: str, terms: tuple[float, ...]) -> str:
    """r times a polynomial in r²."""
    return at.op("Mul", r, _polynomial(at, at.op("Mul", r, r), terms))


def _folded(at: Site, x: str, ends: Iterable[float]) -> str:
    """The input mirrored at plus or minus each of these values if it is beyond: 2 Clip(x, -end, end) - x.

    Values within an end stay exactly as they are, in any element type, and so do differences beyond it.
    """
    for end in ends:
        inside = clip(at, x, -end, end)
        x = at.op("Sub", at.op("Add", inside, inside), x)
    return x


def _reduced(at: Site, x: str, turns: str) -> str:
    """x less so many times pi, part by part."""
    for part in _PI:
        x = at.op("Sub", x, at.op("Mul", turns, at.scalar(part)))
    return x


def _alternating(at: Site, number: str) -> str:
    """1 for an even number, minus 1 for an odd one."""
    two = at.scalar(2)
    odd = at.op("Sub", number, at.op("Mul", at.op("Floor", at.op("Mul", number, at.scalar(0.5))), two))
    return at.op("Sub", at.scalar(1), at.op("Mul", odd, two))


@pytorch("torch.sin(x + torch.pi / 2) instead of x.cos()")
@rule("Cos -> Add Sin", Exactness.ROUNDING, _SHIFTED, rank=20, source=operator("Sin"))
def cos_sin(at: Site) -> str:
    """Sin(x + pi/2)."""
    return at.op("Sin", at.op("Add", at.float32(), at.scalar(pi / 2)))


@pytorch("torch.cos(x - torch.pi / 2) instead of x.sin()")
@rule("Sin -> Sub Cos", Exactness.ROUNDING, _SHIFTED, rank=20, source=operator("Cos"))
def sin_cos(at: Site) -> str:
    """Cos(x - pi/2)."""
    return at.op("Cos", at.op("Sub", at.float32(), at.scalar(pi / 2)))


@pytorch("a polynomial of degree 9 behind a reduction by pi instead of x.sin()")
@rule(
    "Sin -> Mul Add Floor Sub",
    Exactness.DOMAIN,
    Bound(absolute=4e-7),
    domain=_within(_FARTHEST),
    rank=20,
    source=executorch("arm/_passes"),
)
def sin_polynomial(at: Site) -> str:
    """The input less the nearest multiple of pi, then a polynomial of degree 9, with the sign of the half turn."""
    x = at.float32()
    turns = at.op("Floor", at.op("Add", at.op("Mul", x, at.scalar(1 / pi)), at.scalar(0.5)))
    return at.op("Mul", _series(at, _reduced(at, x, turns), _QUARTER), _alternating(at, turns))


@pytorch("a polynomial of degree 9 behind a reduction by pi instead of x.cos()")
@rule(
    "Cos -> Mul Add Floor Sub",
    Exactness.DOMAIN,
    Bound(absolute=4e-7),
    domain=_within(_FARTHEST),
    rank=20,
    source=executorch("arm/_passes"),
)
def cos_polynomial(at: Site) -> str:
    """The input less the nearest odd multiple of pi/2, then a polynomial of degree 9, with the sign of the turn."""
    x = at.float32()
    turns = at.op("Floor", at.op("Add", at.op("Mul", x, at.scalar(1 / pi)), at.scalar(1)))
    rest = _reduced(at, x, at.op("Sub", turns, at.scalar(0.5)))
    return at.op("Mul", _series(at, rest, _QUARTER), _alternating(at, turns))


@pytorch("a polynomial of degree 13 instead of x.sin(), where x stays within half a turn")
@rule(
    "Sin -> Mul Add",
    Exactness.DOMAIN,
    Bound(absolute=1e-6),
    domain=_within(float(np.float32(pi))),
    rank=20,
    source=executorch("arm/_passes"),
)
def sin_half_turn(at: Site) -> str:
    """A polynomial of degree 13, without a reduction of the argument."""
    return _series(at, at.float32(), _HALF)


@pytorch("a polynomial of degree 9 behind x = 2 * x.clamp(-c, c) - x for c of 21, 7, 3, 1 times pi / 2")
@rule(
    "Sin -> Mul Add Sub Clip",
    Exactness.DOMAIN,
    Bound(absolute=6e-6),
    domain=_within(_SINE_REACH),
    rank=20,
    source=operator("Sin"),
)
def sin_folding(at: Site) -> str:
    """The input mirrored into a quarter turn by 2 Clip(x, -c, c) - x, then a polynomial of degree 9."""
    return _series(at, _folded(at, at.float32(), (number * pi / 2 for number in _SINE_FOLDS)), _QUARTER)


@pytorch("as for sin, with c of 7, 4, 2, 1 times pi, then the polynomial of pi / 2 - x.abs()")
@rule(
    "Cos -> Mul Add Sub Clip Relu",
    Exactness.DOMAIN,
    Bound(absolute=4e-6),
    domain=_within(_COSINE_REACH),
    rank=20,
    source=operator("Cos"),
)
def cos_folding(at: Site) -> str:
    """The input mirrored into half a turn by 2 Clip(x, -c, c) - x, then a polynomial of pi/2 less its magnitude."""
    x = _folded(at, at.float32(), (number * pi for number in _COSINE_FOLDS))
    positive = at.op("Relu", x)
    magnitude = at.op("Sub", at.op("Add", positive, positive), x)
    return _series(at, at.op("Sub", at.scalar(pi / 2), magnitude), _QUARTER)


@pytorch("x.sin() / x.cos() instead of x.tan()")
@rule("Tan -> Sin Cos Div", Exactness.ROUNDING, Bound(epsilons=4), rank=20, source=operator("Tan"))
def tan_sin(at: Site) -> str:
    """Sin(x) by Cos(x)."""
    x = at.float32()
    return at.op("Div", at.op("Sin", x), at.op("Cos", x))


def _bent(at: Site, r: str, terms: tuple[float, ...]) -> str:
    """r plus r³ times a polynomial in r²: what is small is added last."""
    square = at.op("Mul", r, r)
    return at.op("Add", r, at.op("Mul", r, at.op("Mul", square, _polynomial(at, square, terms))))


_OF_OUTPUT = Bound(epsilons=4, note=SIGN_OF_ZERO.note)


@pytorch("a polynomial of degree 17 of x.abs().clamp(max=1) / x.abs().clamp(min=1) instead of x.atan()")
@rule(
    "Atan -> Abs Min Max Div Mul Add Sub Sign",
    Exactness.ROUNDING,
    _OF_OUTPUT,
    rank=20,
    source="https://personal.math.ubc.ca/~cbm/aands/page_81.htm",
)
def atan_polynomial(at: Site) -> str:
    """A polynomial of degree 17 of |x|, beyond 1 pi/2 less that of 1/|x|; with the sign of x."""
    x, one = at.float32(), at.scalar(1)
    size = at.op("Abs", x)
    angle = _bent(at, at.op("Div", at.op("Min", size, one), at.op("Max", size, one)), _ATAN)
    side = at.op("Sign", at.op("Sub", one, size))  # 1 below 1, -1 beyond
    base = at.op("Mul", at.op("Sub", one, side), at.scalar(pi / 4))
    return at.op("Mul", at.op("Add", at.op("Mul", side, angle), base), at.op("Sign", x))


def _arc(at: Site, x: str) -> tuple[str, str, str]:
    """The arcsine of the smaller of |x| and sqrt((1 - |x|)/2), which are equal at 1/2; 0 where it is that of |x|, else
    1; and its factor in the arcsine of |x|, 1 or -2.
    """
    one, half = at.scalar(1), at.scalar(0.5)
    size = at.op("Abs", x)
    angle = _bent(at, at.op("Min", size, at.op("Sqrt", at.op("Mul", at.op("Sub", one, size), half))), _ASIN)
    beyond = at.op("Mul", at.op("Sub", one, at.op("Sign", at.op("Sub", half, size))), half)
    return angle, beyond, at.op("Sub", one, at.op("Mul", beyond, at.scalar(3)))


@pytorch("a polynomial of degree 11 of x.abs().minimum(((1 - x.abs()) / 2).sqrt()) instead of x.asin()")
@rule(
    "Asin -> Abs Sub Mul Sqrt Min Add Sign",
    Exactness.ROUNDING,
    _OF_OUTPUT,
    rank=20,
    source=_CEPHES_ASIN,
)
def asin_polynomial(at: Site) -> str:
    """A polynomial of degree 11 of |x|, beyond 1/2 pi/2 less twice that of sqrt((1 - |x|)/2); with the sign of x."""
    x = at.float32()
    angle, beyond, factor = _arc(at, x)
    size = at.op("Add", at.op("Mul", angle, factor), at.op("Mul", beyond, at.scalar(pi / 2)))
    return at.op("Mul", size, at.op("Sign", x))


@pytorch("torch.pi / 2 less the polynomial for asin; beyond 1 / 2 twice that of ((1 - x) / 2).sqrt(), for x.acos()")
@rule(
    "Acos -> Abs Sub Mul Sqrt Min Add Sign",
    Exactness.ROUNDING,
    Bound(epsilons=4),
    rank=20,
    source=_CEPHES_ASIN,
)
def acos_polynomial(at: Site) -> str:
    """pi/2 less a polynomial of degree 11 of x; beyond 1/2 twice that of sqrt((1 - |x|)/2), or pi less that for a
    negative x.
    """
    x = at.float32()
    angle, beyond, factor = _arc(at, x)
    sign = at.op("Sign", x)
    base = at.op("Mul", at.op("Sub", at.scalar(1), at.op("Mul", sign, beyond)), at.scalar(pi / 2))
    return at.op("Sub", base, at.op("Mul", sign, at.op("Mul", factor, angle)))


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
