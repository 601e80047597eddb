"""Gemm, MatMul and CumSum by one another and by Conv; Einsum by Transpose, ReduceSum and MatMul; Fourier transforms as
products with constant sines and cosines.

Operands of Einsum are contracted from left to right, as onnxruntime does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import AI_HUB, FINITE, OF_PRODUCTS, Bound, executorch, operator, pytorch, rule, tidl
from onnxbisect.rewrites.site import INTEGERS, Site, demand_float32, reduce, reshape, slice_axis, transpose

#: Terms of a product that is written out.
_FEW_TERMS = 16
#: Elements on the longest axis that a triangular matrix is made for.
_LONGEST = 2048
#: Elements of the waves that a Fourier transform is written with.
_MOST_WAVES = 1 << 24


def _oriented(at: Site, slot: int, transposed: str, factor: float) -> str:
    """A matrix of Gemm, transposed and multiplied as its attributes say; beforehand where it is a constant."""
    turned = bool(at.attribute(transposed, 0))
    if at.is_constant(slot) and (turned or factor != 1):
        value = at.value(slot)
        return at.constant((value.T if turned else value) * np.float32(factor))
    matrix = transpose(at, at.input(slot), [1, 0]) if turned else at.input(slot)
    return matrix if factor == 1 else at.op("Mul", matrix, at.scalar(factor))


@pytorch("x @ weight.T + bias instead of F.linear(x, weight, bias)")
@rule("Gemm -> MatMul Add Transpose Mul", Exactness.ROUNDING, OF_PRODUCTS, rank=24, source=tidl("gemm.py"))
def gemm_matmul(at: Site) -> str:
    """MatMul and Add; alpha goes into the second matrix, beta into the third input, constants beforehand."""
    demand_float32(at)
    alpha, beta = at.attribute("alpha", 1.0), at.attribute("beta", 1.0)
    at.demand(bool(np.isfinite([alpha, beta]).all()), "alpha or beta is not finite")
    product = at.op("MatMul", _oriented(at, 0, "transA", 1.0), _oriented(at, 1, "transB", alpha))
    if not at.has(2) or beta == 0:
        return product
    if beta == 1:
        return at.op("Add", product, at.input(2))
    offset = at.constant(at.value(2) * np.float32(beta)) if at.is_constant(2) else None
    return at.op("Add", product, offset or at.op("Mul", at.input(2), at.scalar(beta)))


@pytorch("F.conv2d(x.transpose(1, 2)[..., None], weight[:, :, None, None]) instead of x @ weight.T")
@rule(
    "MatMul -> Transpose Reshape Conv",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    rank=13,
    source=executorch("qualcomm/_passes/convert_linear_to_conv2d.py"),
)
def matmul_conv(at: Site) -> str:
    """A product with a constant matrix as a convolution of 1x1: the rows become pixels, the columns channels."""
    demand_float32(at)
    shape, weight = at.shape(0), at.value(1)
    at.demand(len(shape) > 1 and weight.ndim == 2, "it is no product of rows with a constant matrix")
    depth, columns = weight.shape
    at.demand(weight.size > 0, "a tensor is empty")
    rows = prod(shape[:-1])
    image = reshape(at, transpose(at, reshape(at, at.input(0), [rows, depth]), [1, 0]), [1, depth, rows, 1])
    kernel = at.constant(weight.T.reshape(columns, depth, 1, 1))
    pixels = reshape(at, at.op("Conv", image, kernel), [columns, rows])
    return reshape(at, transpose(at, pixels, [1, 0]), at.output_shape())


@pytorch("(a[..., None] * b[..., None, :, :]).sum(-2) instead of a @ b")
@rule(
    "MatMul -> Reshape Mul ReduceSum", Exactness.ROUNDING, OF_PRODUCTS, rank=40, source=AI_HUB + "gkt/model_patches.py"
)
def matmul_sum(at: Site) -> str:
    """A small product written out: Mul of broadcast operands, summed over the contracted axis."""
    demand_float32(at)
    left, right = at.shape(0), at.shape(1)
    at.demand(len(left) > 1 and len(right) > 1, "an operand is a vector")
    at.demand(0 < left[-1] <= _FEW_TERMS, f"{left[-1]} products are summed")
    a = reshape(at, at.input(0), [*left, 1])
    b = reshape(at, at.input(1), [*right[:-2], 1, *right[-2:]])
    return reduce(at, "ReduceSum", at.op("Mul", a, b), [max(len(left), len(right)) - 1], keepdims=False)


def _axis_of_sums(at: Site) -> int:
    """The axis along which CumSum adds."""
    shape, axis = at.shape(0), int(at.value(1).ravel()[0])
    at.demand(-len(shape) <= axis < len(shape), f"axis {axis} does not exist")
    axis %= len(shape)
    at.demand(0 < shape[axis] <= _LONGEST, f"the axis has {shape[axis]} elements")
    return axis


_PREFIX_SUMS = "https://doi.org/10.1145/7902.7903"


@pytorch("x @ torch.ones(n, n).triu() instead of x.cumsum(-1)")
@rule(
    "CumSum -> Transpose MatMul",
    Exactness.DOMAIN,
    Bound(epsilons=1, of="the sum of all magnitudes along the axis, times their number plus 2", absolute=1e-37),
    domain=FINITE,
    rank=19,
    source="https://github.com/immich-app/ml-models/issues/31",
)
def cumsum_matmul(at: Site) -> str:
    """A product with a triangle of ones."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, axis = at.shape(0), _axis_of_sums(at)
    triangle = np.triu(np.ones((shape[axis], shape[axis]), np.float32), k=int(at.attribute("exclusive", 0)))
    if at.attribute("reverse", 0):
        triangle = triangle.T
    swapped = [*range(axis), len(shape) - 1, *range(axis + 1, len(shape) - 1), axis]
    if axis == len(shape) - 1:
        swapped = list(range(len(shape)))
    return transpose(at, at.op("MatMul", transpose(at, at.input(0), swapped), at.constant(triangle)), swapped)


@pytorch("x + F.pad(x, (1, 0))[..., :-1], then by 2, 4, … instead of x.cumsum(-1)")
@rule("CumSum -> Slice Concat Add", Exactness.EXACT, rank=19, source=_PREFIX_SUMS)
def cumsum_integers(at: Site) -> str:
    """Integers plus those one place before, the sums plus those two places before, and so on (Hillis and Steele)."""
    at.demand_dtype(*INTEGERS)
    return _sums_by_steps(at)


@pytorch("x + F.pad(x, (1, 0))[..., :-1], then by 2, 4, … instead of x.cumsum(-1)")
@rule(
    "CumSum -> Slice Concat Add",
    Exactness.ROUNDING,
    Bound(epsilons=1, of="the sum of all magnitudes along the axis, times their number plus 2", absolute=1e-37),
    rank=19,
    source=_PREFIX_SUMS,
)
def cumsum_steps(at: Site) -> str:
    """Numbers plus those one place before, the sums plus those two places before, and so on (Hillis and Steele)."""
    at.demand_dtype(TensorProto.FLOAT)
    return _sums_by_steps(at)


def _sums_by_steps(at: Site) -> str:
    shape, axis = at.shape(0), _axis_of_sums(at)
    length, reverse = shape[axis], bool(at.attribute("reverse", 0))

    def moved(tensor: str, places: int) -> str:
        """Zeros, and the tensor without as many at the other end."""
        zeros = at.constant(np.zeros([*shape[:axis], places, *shape[axis + 1 :]], at.value_dtype(0)))
        if places == length:
            return zeros
        first = places if reverse else 0
        kept = slice_axis(at, tensor, axis, first, first + length - places)
        return at.op("Concat", *((kept, zeros) if reverse else (zeros, kept)), axis=axis)

    sums, step = at.input(0), 1
    if at.attribute("exclusive", 0):
        sums = moved(sums, 1)
    while step < length:
        sums = at.op("Add", sums, moved(sums, step))
        step *= 2
    return sums if sums != at.input(0) else at.op("Identity", sums)


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


@pytorch("F.conv1d(x[:, None], waves * window, stride=hop), waves of sines and cosines, instead of torch.stft(x, …)")
@rule(
    "STFT -> Reshape Conv Transpose",
    Exactness.DOMAIN,
    OF_PRODUCTS,
    domain=FINITE,
    rank=18,
    source="https://github.com/pytorch/pytorch/issues/31317",
)
def stft_conv(at: Site) -> str:
    """Products of real frames with the window's waves, a cosine and a sine for each frequency."""
    at.demand_dtype(TensorProto.FLOAT)
    shape = at.shape(0)
    at.demand(len(shape) == 2 or shape[2:] == (1,), "the signal is complex")
    window = at.value(2).astype(np.float64) if at.has(2) else np.ones(int(at.value(3).reshape(())))
    size, hop = len(window), int(at.value(1).reshape(()))
    bins = size // 2 + 1 if at.attribute("onesided", 1) else size
    at.demand(2 * bins * size <= _MOST_WAVES, "the window is too long")
    angles = -2 * np.pi / size * (np.outer(np.arange(bins), np.arange(size)) % size)
    waves = np.stack([np.cos(angles), np.sin(angles)], axis=1) * window
    kernel = at.constant(waves.reshape(2 * bins, 1, size).astype(np.float32))
    signal = reshape(at, at.input(0), [shape[0], 1, shape[1]])
    batch, frames = at.output_shape()[:2]
    made = at.op("Conv", signal, kernel, strides=[hop])
    return transpose(at, reshape(at, made, [batch, bins, 2, frames]), [0, 3, 1, 2])


@pytorch("x.movedim(dim, -1) @ waves, waves a matrix of cosines and sines, instead of torch.fft.fft(x, dim=dim)")
@rule(
    "DFT -> Reshape Transpose MatMul",
    Exactness.DOMAIN,
    OF_PRODUCTS,
    domain=FINITE,
    rank=39,
    source="https://github.com/onnx/onnx/issues/3573",
)
def dft_matmul(at: Site) -> str:
    """A product with the waves of all frequencies along an axis, real and imaginary part side by side."""
    at.demand_dtype(TensorProto.FLOAT)
    shape, rank = at.shape(0), at.rank(0)
    parts = shape[-1]
    axis = int(at.value(2).reshape(())) if at.has(2) else at.attribute("axis", 1 if at.opset < 20 else -2)
    at.demand(-rank <= axis < rank and axis % rank < rank - 1, f"axis {axis} is none of the signal's")
    axis, inverse = axis % rank, bool(at.attribute("inverse", 0))
    count = shape[axis]
    length = int(at.value(1).reshape(())) if at.has(1) else count
    bins = at.output_shape()[axis]
    at.demand(not (inverse and at.attribute("onesided", 0)), "half of a spectrum is turned back into a real signal")
    at.demand(4 * bins * count <= _MOST_WAVES and bins > 0, "the signal is too long")
    angles = (2 if inverse else -2) * np.pi / length * (np.outer(np.arange(count), np.arange(bins)) % length)
    used = (np.arange(count) < length)[:, None] / (length if inverse else 1)  # a longer signal is cut off
    cosines, sines = np.cos(angles) * used, np.sin(angles) * used
    waves = np.stack([np.stack([cosines, sines], -1), np.stack([-sines, cosines], -1)][:parts], 1)
    order = [*(it for it in range(rank - 1) if it != axis), axis]
    outer = [shape[it] for it in order[:-1]]
    rows = reshape(at, transpose(at, at.input(0), [*order, rank - 1]), [*outer, count * parts])
    made = at.op("MatMul", rows, at.constant(waves.reshape(count * parts, bins * 2).astype(np.float32)))
    back = [order.index(it) for it in range(rank - 1)]
    return transpose(at, reshape(at, made, [*outer, bins, 2]), [*back, rank - 1])
