"""Nodes whose form changed between operator sets, written in the form of the model's set."""

from collections.abc import Sequence

import numpy as np
from onnx import helper

from onnxbisect.rewrites.site import Site

#: Operator sets from which reductions take their axes as an input.
_REDUCTION_INPUT = {"ReduceSum": 13}
_OTHER_REDUCTION_INPUT = 18


def reshape(at: Site, tensor: str, shape: Sequence[int]) -> str:
    """Reshape to fixed dimensions. A dimension of 0 would copy the input's, so empty tensors are refused."""
    at.demand(0 not in shape, "a tensor is empty")
    return at.op("Reshape", tensor, at.integers(shape))


def transpose(at: Site, tensor: str, perm: Sequence[int]) -> str:
    """Permute axes; no node if the permutation is the identity."""
    return tensor if list(perm) == sorted(perm) else at.op("Transpose", tensor, perm=list(perm))


def slice_axis(at: Site, tensor: str, axis: int, start: int, end: int, step: int = 1) -> str:
    """A range of one axis."""
    if at.opset < 10:
        at.demand(step == 1, "Slice has no steps before operator set 10")
        return at.op("Slice", tensor, axes=[axis], starts=[start], ends=[end])
    steps = [] if step == 1 else [at.integers([step])]
    return at.op("Slice", tensor, at.integers([start]), at.integers([end]), at.integers([axis]), *steps)


def concat(at: Site, tensors: Sequence[str], axis: int) -> str:
    """Join tensors; no node for a single one."""
    return tensors[0] if len(tensors) == 1 else at.op("Concat", *tensors, axis=axis)


def reduce(at: Site, kind: str, tensor: str, axes: Sequence[int], *, keepdims: bool) -> str:
    """Reduce over some axes."""
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
    """The number rounded to the element type of an input."""
    return float(np.array(value, helper.tensor_dtype_to_np_dtype(at.dtype(slot))))


def pairwise(at: Site, kind: str) -> str:
    """Join all inputs of the node by a binary op, from left to right."""
    first, *rest = at.inputs()
    for other in rest:
        first = at.op(kind, first, other)
    return first


def minus(at: Site, tensor: str) -> str:
    """The tensor times -1, in the element type of the node's first input."""
    return at.op("Mul", tensor, at.scalar(-1))
