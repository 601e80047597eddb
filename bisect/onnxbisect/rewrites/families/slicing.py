"""Slice and Split at constant places, in simpler forms."""

from itertools import pairwise
from math import ceil

import numpy as np
from onnx import TensorProto, helper

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.patterns import AnyConstant, part
from onnxbisect.rewrites.rule import CONVERTER_FIX, OF_PRODUCTS, executorch, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site, concat, reshape, slice_axis


def _ranges(at: Site) -> list[tuple[int, int, int, int]]:
    """Axis, start, end and step of each axis that a Slice takes; ends within the tensor, or before its first place."""
    shape = at.shape(0)
    if at.opset < 10:
        starts, ends = at.attribute("starts", [0]), at.attribute("ends", [0])
        axes, steps = at.attribute("axes", list(range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = at.value(1).tolist(), at.value(2).tolist()
        axes = at.value(3).tolist() if at.has(3) else list(range(len(starts)))
        steps = at.value(4).tolist() if at.has(4) else [1] * len(starts)
    at.demand(len(starts) == len(ends) == len(axes) == len(steps), "starts, ends, axes and steps differ in length")
    found = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at.demand(-len(shape) <= axis < len(shape), f"axis {axis} does not exist at rank {len(shape)}")
        first, last, _ = slice(start, end, step).indices(shape[axis])
        at.demand(bool(range(first, last, step)), "the slice is empty")
        found.append((axis % len(shape), first, last if last >= 0 else -shape[axis] - 1, step))
    at.demand(len({axis for axis, *_ in found}) == len(found), "an axis is named twice")
    return found


@pytorch("x[:, a:b][:, :, c:d] instead of x[:, a:b, c:d]")
@rule("Slice -> Slice", Exactness.EXACT, rank=15, source=tidl("slice.py"))
def slice_axes(at: Site) -> str:
    """A Slice of several axes: one for each axis, in turn."""
    ranges = _ranges(at)
    at.demand(len(ranges) > 1, "the Slice has one axis")
    tensor = at.input(0)
    for axis, start, end, step in ranges:
        tensor = slice_axis(at, tensor, axis, start, end, step)
    return tensor


@pytorch("x.reshape(n, c // 2, 2)[:, :, 0] instead of x[:, ::2]")
@rule(
    "Slice -> Slice Reshape Concat",
    Exactness.EXACT,
    rank=15,
    source=executorch("arm/_passes/decompose_strided_slice_copy_pass.py"),
)
def slice_steps(at: Site) -> str:
    """A step as an axis: every `step` neighbours get an axis of their own, of which the first is kept."""
    ranges, shape, tensor = _ranges(at), list(at.shape(0)), at.input(0)
    at.demand(all(step > 0 for *_, step in ranges), "a step is negative")
    at.demand(any(step > 1 for *_, step in ranges), "every step is 1")
    for axis, start, end, step in ranges:
        count = ceil((end - start) / step)
        span = start + count * step
        if span <= shape[axis]:
            tensor = slice_axis(at, tensor, axis, start, span)
        else:  # the last place has no `step` neighbours: they are repeated from the first ones
            rest = slice_axis(at, tensor, axis, start, shape[axis])
            missing = span - shape[axis]
            at.demand(missing <= shape[axis] - start, "the step is too large")
            tensor = concat(at, [rest, slice_axis(at, tensor, axis, start, start + missing)], axis)
        if step > 1:
            split = reshape(at, tensor, [*shape[:axis], count, step, *shape[axis + 1 :]])
            tensor = slice_axis(at, split, axis + 1, 0, 1)
        shape[axis] = count
        tensor = reshape(at, tensor, shape) if step > 1 else tensor
    return tensor


@pytorch("x[:, places] with a constant list of places instead of x.flip(1) or x[:, ::2]")
@rule("Slice -> Gather Slice", Exactness.EXACT, rank=15, source=tidl("slice.py"))
def slice_gather(at: Site) -> str:
    """Steps other than 1, such as those of a flip, as a Gather of constant places on each of their axes."""
    ranges, shape, tensor = _ranges(at), at.shape(0), at.input(0)
    at.demand(any(step != 1 for *_, step in ranges), "every step is 1")
    for axis, start, end, step in ranges:
        if step == 1:
            tensor = slice_axis(at, tensor, axis, start, end)
        else:
            places = np.arange(shape[axis])[start:end:step]
            tensor = at.op("Gather", tensor, at.constant(places), axis=axis)
    return tensor


@pytorch("x[:, a + c : a + d] instead of x[:, a:b][:, c:d]")
@rule(
    "-> Slice",
    Exactness.EXACT,
    pattern=part("Slice", part("Slice", "x", name="first"), name="second"),
    rank=15,
    source=tidl("slice.py"),
)
def slice_merge(at: Site) -> str:
    """A Slice of a Slice as one, of the places that both leave."""
    first, second = at.part("first"), at.part("second")
    at.demand(at.opset >= 10, "Slice has no steps before operator set 10")
    shape, places = first.shape(0), dict[int, range]()
    for one in (first, second):
        for axis, start, end, step in _ranges(one):
            places[axis] = places.get(axis, range(shape[axis]))[start:end:step]
    ends = [it.stop if it.stop >= 0 else -shape[axis] - 1 for axis, it in places.items()]
    starts, steps = [it.start for it in places.values()], [it.step for it in places.values()]
    return at.op("Slice", at.matched("x"), *map(at.integers, (starts, ends, list(places), steps)))


@pytorch("a convolution with the weights of the channels that are kept, instead of conv(x)[:, a:b]")
@rule(
    "-> Conv",
    Exactness.ROUNDING,
    OF_PRODUCTS,
    pattern=part("Slice", part("Conv", "x", AnyConstant("weights"), name="conv"), name="slice"),
    rank=14,
    source=tidl("slice.py"),
)
def slice_conv(at: Site) -> str:
    """A Slice of the channels that a Conv gives as a Conv with the weights of those channels."""
    conv, places = at.part("conv"), _ranges(at.part("slice"))
    conv.demand_dtype(TensorProto.FLOAT)
    at.demand(conv.attribute("group", 1) == 1, "the convolution has groups")
    at.demand([axis for axis, *_ in places] == [1], "it does not slice the channels, or not them alone")
    ((_, start, end, step),) = places
    slots = range(1, 3 if conv.has(2) else 2)
    kept = [at.constant(conv.value(slot)[start:end:step]) for slot in slots]
    attributes = {it.name: helper.get_attribute_value(it) for it in conv.node.attribute}
    return at.op("Conv", at.matched("x"), *kept, **attributes)


@pytorch("x[:, :a], x[:, a:] instead of x.split((a, b), 1)")
@rule("Split -> Slice", Exactness.EXACT, rank=15, source=CONVERTER_FIX)
def split_slices(at: Site) -> tuple[str, ...]:
    """One Slice for each output."""
    shape = at.shape(0)
    axis = at.axis(len(shape))
    ends = np.cumsum([at.output_shape(slot)[axis] for slot in range(len(at.node.output))]).tolist()
    at.demand(ends[-1] == shape[axis], "the parts are not the whole")
    bounds = pairwise([0, *ends])
    return tuple(slice_axis(at, at.input(0), axis, start, end) for start, end in bounds)
