"""Pad by Slice and Concat."""

from math import prod

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.families.shape import MOST_CONSTANT
from onnxbisect.rewrites.forms import concat, slice_axis
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import executorch


@pytorch("torch.cat([zeros, x, zeros], -1) instead of F.pad(x, (a, b))")
@rule("Pad -> Slice Concat", Exactness.EXACT, rank=48, source=executorch("qualcomm/_passes/decompose_pad.py"))
def pad_slices(at: Site) -> str:
    """Borders as constants, or as Slices of the tensor for the modes reflect and edge, joined; a Slice where pads are
    negative.
    """
    shape, mode = list(at.shape(0)), at.attribute("mode", "constant")
    at.demand(mode in ("constant", "reflect", "edge"), f"the mode is {mode}")
    tensor = at.input(0)
    for axis, (before, after) in _pads(at, len(shape)):
        size = shape[axis]
        at.demand(size > 0 and size + min(before, 0) + min(after, 0) > 0, "nothing is left")
        if before < 0 or after < 0:
            tensor = slice_axis(at, tensor, axis, max(-before, 0), size - max(-after, 0))
            size += min(before, 0) + min(after, 0)
        ends = [
            _border(at, tensor, axis, [*shape[:axis], size, *shape[axis + 1 :]], count, mode, front=front)
            for count, front in ((max(before, 0), True), (max(after, 0), False))
        ]
        tensor = concat(at, [*ends[0], tensor, *ends[1]], axis)
        shape[axis] = size + max(before, 0) + max(after, 0)
    at.demand(tensor != at.input(0), "nothing is padded")
    return tensor


def _pads(at: Site, rank: int) -> list[tuple[int, tuple[int, int]]]:
    """Each axis with what is added before and after it."""
    pads = at.attribute("pads", [0]) if at.opset < 11 else at.value(1).tolist()
    axes = [int(axis) % rank for axis in at.value(3)] if at.has(3) else list(range(rank))
    at.demand(len(pads) == 2 * len(axes), "there are not two pads for each axis")
    return [(axis, (int(pads[n]), int(pads[n + len(axes)]))) for n, axis in enumerate(axes)]


def _border(at: Site, tensor: str, axis: int, shape: list[int], count: int, mode: str, *, front: bool) -> list[str]:
    """What stands before or behind a tensor along one axis, in order."""
    if not count:
        return []
    if mode == "constant":
        fill = at.attribute("value", 0.0) if at.opset < 11 else at.value(2).ravel()[0] if at.has(2) else 0
        dims = [*shape[:axis], count, *shape[axis + 1 :]]
        at.demand(prod(dims) <= MOST_CONSTANT, "the border is too large")
        return [at.constant(np.full(dims, fill, at.value_dtype(0)))]
    size = shape[axis]
    if mode == "edge":
        place = 0 if front else size - 1
        return [slice_axis(at, tensor, axis, place, place + 1)] * count
    at.demand(count < size, "more is reflected than there is")
    places = range(count, 0, -1) if front else range(size - 2, size - 2 - count, -1)
    return [slice_axis(at, tensor, axis, place, place + 1) for place in places]
