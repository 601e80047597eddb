"""Nodes whose form changed between operator sets, written as the model's own set has them."""

from collections.abc import Sequence

import numpy as np
from onnx import helper

from onnxbisect.rewrites.site import Site

#: Operator sets from which reductions take their axes as an input.
_REDUCTION_INPUT = {"ReduceSum": 13}
_OTHER_REDUCTION_INPUT = 18


def reshape(at: Site, tensor: str, shape: Sequence[int]) -> str:
    """Reshape to fixed dimensions. A dimension of 0 would mean a copy of the input's, so no tensor is empty."""
    at.demand(0 not in shape, "a tensor is empty")
    return at.op("Reshape", tensor, at.integers(shape))


def transpose(at: Site, tensor: str, perm: Sequence[int]) -> str:
    """Permute axes; nothing where the permutation changes nothing."""
    return tensor if list(perm) == sorted(perm) else at.op("Transpose", tensor, perm=list(perm))


def slice_axis(at: Site, tensor: str, axis: int, start: int, end: int, step: int = 1) -> str:
    """A range of one axis."""
    if at.opset < 10:
        at.demand(step == 1, "Slice has no steps before operator set 10")
        return at.op("Slice", tensor, axes=[axis], starts=[start], ends=[end])
    steps = [] if step == 1 else [at.integers([step])]
    return at.op("Slice", tensor, at.integers([start]), at.integers([end]), at.integers([axis]), *steps)


def concat(at: Site, tensors: Sequence[str], axis: int) -> str:
    """Join tensors; nothing for a single one."""
    return tensors[0] if len(tensors) == 1 else at.op("Concat", *tensors, axis=axis)


def reduce(at: Site, kind: str, tensor: str, axes: Sequence[int], *, keepdims: bool) -> str:
    """A reduction over some axes."""
    if at.opset < _REDUCTION_INPUT.get(kind, _OTHER_REDUCTION_INPUT):
        return at.op(kind, tensor, axes=list(axes), keepdims=int(keepdims))
    return at.op(kind, tensor, at.integers(axes), keepdims=int(keepdims))


def clip(at: Site, tensor: str, low: float, high: float) -> str:
    """Clip between two numbers."""
    if at.opset < 11:
        return at.op("Clip", tensor, min=float(low), max=float(high))
    return at.op("Clip", tensor, at.scalar(low), at.scalar(high))


def cast(at: Site, tensor: str, dtype: int) -> str:
    """Convert to another element type."""
    return at.op("Cast", tensor, to=dtype)


def rounded(value: float, at: Site, slot: int = 0) -> float:
    """A number as the element type of an input holds it."""
    return float(np.array(value, helper.tensor_dtype_to_np_dtype(at.dtype(slot))))


def pairwise(at: Site, kind: str) -> str:
    """All inputs of the node joined by an op of two inputs, from left to right."""
    first, *rest = at.inputs()
    for other in rest:
        first = at.op(kind, first, other)
    return first


def minus(at: Site, tensor: str) -> str:
    """The tensor times minus one, in the element type of the node's first input."""
    return at.op("Mul", tensor, at.scalar(-1))
