"""Gemm, MatMul and CumSum by one another and by Conv."""

from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import FINITE, OF_PRODUCTS, Bound
from onnxbisect.rewrites.forms import reduce, reshape, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import AI_HUB, executorch, tidl

#: Terms of a product that is written out.
_FEW_TERMS = 16
#: Elements on the longest axis that a triangular matrix is made for.
_LONGEST = 2048


def _float32(at: Site) -> None:
    for slot in range(len(at.node.input)):
        if at.has(slot):
            at.demand_dtype(TensorProto.FLOAT, slot=slot)


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
    _float32(at)
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
    _float32(at)
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
    _float32(at)
    left, right = at.shape(0), at.shape(1)
    at.demand(len(left) > 1 and len(right) > 1, "an operand is a vector")
    at.demand(0 < left[-1] <= _FEW_TERMS, f"{left[-1]} products are summed")
    a = reshape(at, at.input(0), [*left, 1])
    b = reshape(at, at.input(1), [*right[:-2], 1, *right[-2:]])
    return reduce(at, "ReduceSum", at.op("Mul", a, b), [max(len(left), len(right)) - 1], keepdims=False)


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
    shape, axis = at.shape(0), int(at.value(1).ravel()[0])
    at.demand(-len(shape) <= axis < len(shape), f"axis {axis} does not exist")
    axis %= len(shape)
    at.demand(0 < shape[axis] <= _LONGEST, f"the axis has {shape[axis]} elements")
    triangle = np.triu(np.ones((shape[axis], shape[axis]), np.float32), k=int(at.attribute("exclusive", 0)))
    if at.attribute("reverse", 0):
        triangle = triangle.T
    swapped = [*range(axis), len(shape) - 1, *range(axis + 1, len(shape) - 1), axis]
    if axis == len(shape) - 1:
        swapped = list(range(len(shape)))
    return transpose(at, at.op("MatMul", transpose(at, at.input(0), swapped), at.constant(triangle)), swapped)
