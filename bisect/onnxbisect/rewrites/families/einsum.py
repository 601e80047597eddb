"""Einsum by Transpose, ReduceSum and MatMul: operands are contracted from left to right, as onnxruntime does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import OF_PRODUCTS
from onnxbisect.rewrites.forms import reduce, reshape, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import AI_HUB, operator

_TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")
#: Stand for the dimensions of an ellipsis, which are aligned at the right; no equation has digits.
_ELLIPSIS = "0123456789"


@dataclass(frozen=True, kw_only=True)
class _Operand:
    """A tensor with a letter for each of its axes."""

    tensor: str
    letters: str


@dataclass(frozen=True, kw_only=True)
class _Equation:
    """The operands, the letters of the result, and the length of each letter's axis."""

    operands: tuple[_Operand, ...]
    out: str
    size: dict[str, int]


def _equation(at: Site) -> _Equation:
    """Read the equation, with the ellipsis written out and an implicit result made explicit."""
    written, arrow, result = at.attribute("equation", "").replace(" ", "").partition("->")
    terms = written.split(",")
    at.demand(len(terms) == len(at.node.input), "the equation does not have a term for each operand")
    shapes = [at.shape(slot) for slot in range(len(terms))]
    letters = [_spelled(at, term, len(shape)) for term, shape in zip(terms, shapes, strict=True)]
    size: dict[str, int] = {}
    for term, shape in zip(letters, shapes, strict=True):
        at.demand(len(set(term)) == len(term), "a letter is repeated in one operand")
        at.demand(all(size.setdefault(a, dim) == dim for a, dim in zip(term, shape, strict=True)), "an axis broadcasts")
    rest = "".join(letters)
    ellipsis = "".join(digit for digit in _ELLIPSIS if digit in rest)
    if arrow:
        out = _spelled(at, result, len(result.replace("...", "")) + len(ellipsis) * ("..." in result))
    else:
        out = ellipsis + "".join(sorted(a for a in set(rest) - {*ellipsis} if rest.count(a) == 1))
    at.demand(len(set(out)) == len(out), "the result repeats a letter")
    at.demand(set(out) <= size.keys(), "the result has a letter that no operand has")
    operands = (_Operand(tensor=at.input(slot), letters=term) for slot, term in enumerate(letters))
    return _Equation(operands=tuple(operands), out=out, size=size)


def _spelled(at: Site, term: str, rank: int) -> str:
    """A letter for each axis of a term; an ellipsis becomes the last digits."""
    found = at.known(_TERM.fullmatch(term), f"{term!r} is no term of an equation")
    front, dots, back = found.groups()
    hidden = rank - len(front) - len(back)
    at.demand(0 <= hidden <= len(_ELLIPSIS) and (bool(dots) or not hidden), "the equation does not fit the ranks")
    return front + _ELLIPSIS[len(_ELLIPSIS) - hidden :] + back


def _summed(at: Site, operand: _Operand, keep: set[str]) -> _Operand:
    """The operand without the axes that nothing else needs."""
    axes = [axis for axis, letter in enumerate(operand.letters) if letter not in keep]
    if not axes:
        return operand
    tensor = reduce(at, "ReduceSum", operand.tensor, axes, keepdims=False)
    return _Operand(tensor=tensor, letters="".join(letter for letter in operand.letters if letter in keep))


def _ordered(at: Site, operand: _Operand, out: Sequence[str]) -> str:
    return transpose(at, operand.tensor, [operand.letters.index(letter) for letter in out])


@pytorch('x.transpose(1, 2) instead of torch.einsum("bnf->bfn", x)')
@rule("Einsum -> Transpose", Exactness.EXACT, rank=5, source=operator("Einsum"))
def einsum_transpose(at: Site) -> str:
    """The axes of one operand in another order."""
    equation = _equation(at)
    at.demand(len(equation.operands) == 1, "there is more than one operand")
    (operand,) = equation.operands
    at.demand(set(operand.letters) == set(equation.out), "an axis is summed")
    return _ordered(at, operand, equation.out)


@pytorch('x.sum(1) instead of torch.einsum("bnf->bf", x)')
@rule("Einsum -> ReduceSum Transpose", Exactness.ROUNDING, OF_PRODUCTS, rank=5, source=operator("Einsum"))
def einsum_sum(at: Site) -> str:
    """Axes of one operand summed, the others in another order."""
    at.demand_dtype(TensorProto.FLOAT)
    equation = _equation(at)
    at.demand(len(equation.operands) == 1, "there is more than one operand")
    (operand,) = equation.operands
    at.demand(set(operand.letters) != set(equation.out), "no axis is summed")
    at.demand(0 not in equation.size.values(), "a tensor is empty")
    return _ordered(at, _summed(at, operand, set(equation.out)), equation.out)


@pytorch('a @ b.transpose(-1, -2) instead of torch.einsum("bhid,bhjd->bhij", a, b)')
@rule(
    "Einsum -> Transpose Reshape MatMul ReduceSum",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=5,
    source=AI_HUB + "ddcolor/model.py",
)
def einsum_matmul(at: Site) -> str:
    """Two operands at a time, their axes ordered as batch, free and contracted: a product of batches of matrices."""
    for slot in range(len(at.node.input)):
        at.demand_dtype(TensorProto.FLOAT, slot=slot)
    equation = _equation(at)
    product, *rest = equation.operands
    at.demand(bool(rest), "there is only one operand")
    for number, other in enumerate(rest):
        later = {*equation.out, *(letter for operand in rest[number + 1 :] for letter in operand.letters)}
        left, right = (_summed(at, one, later | set(two.letters)) for one, two in ((product, other), (other, product)))
        product = _product(at, left, right, later, equation.size)
    return _ordered(at, product, equation.out)


def _product(at: Site, left: _Operand, right: _Operand, later: set[str], size: dict[str, int]) -> _Operand:
    """MatMul of two operands, which keeps the letters that are needed later."""
    shared = [letter for letter in left.letters if letter in right.letters]
    batch = [letter for letter in shared if letter in later]
    summed = [letter for letter in shared if letter not in later]
    rows, columns = (
        [letter for letter in one.letters if letter not in two.letters] for one, two in ((left, right), (right, left))
    )

    def grouped(operand: _Operand, *groups: list[str]) -> str:
        ordered = _ordered(at, operand, [letter for group in groups for letter in group])
        return reshape(at, ordered, [prod(size[letter] for letter in group) for group in groups])

    product = at.op("MatMul", grouped(left, batch, rows, summed), grouped(right, batch, summed, columns))
    letters = batch + rows + columns
    return _Operand(tensor=reshape(at, product, [size[letter] for letter in letters]), letters="".join(letters))
