"""Operators that had another form in older operator sets: axes as attributes, fewer inputs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import helper

from onnxbisect.rewrites import Site
from onnxbisect.rewrites.site import transpose

#: Writes a node in the form of `at.opset`; None if its present form is valid there.
Write = Callable[[Site], "str | tuple[str, ...] | None"]


@dataclass(frozen=True, kw_only=True)
class OperatorForm:
    """`until` is the operator set from which the operator has its present form."""

    until: int
    write: Write


FORMS: dict[str, OperatorForm] = {}


def _form_of(ops: str, *, until: int) -> Callable[[Write], Write]:
    def register(write: Write) -> Write:
        FORMS.update(dict.fromkeys(ops.split(), OperatorForm(until=until, write=write)))
        return write

    return register


#: Reductions that return the element itself if they reduce no axis.
_UNCHANGING = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")


@_form_of(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare", until=18
)
@_form_of("ReduceSum", until=13)
def _reduction(at: Site) -> str | None:
    """Axes as an attribute."""
    axes = at.value(1).ravel().tolist() if at.has(1) else []
    if not axes and at.attribute("noop_with_empty_axes", 0):
        at.demand(at.node.op_type in _UNCHANGING, "without axes it still computes something of each element")
        return at.op("Identity", at.input(0))
    return at.like(at.input(0), axes=axes or None, noop_with_empty_axes=None)


@_form_of("Squeeze Unsqueeze", until=13)
def _axes_attribute(at: Site) -> str:
    """Squeeze and Unsqueeze with axes as an attribute."""
    axes = [int(axis) for axis in at.value(1).ravel()] if at.has(1) else None
    return at.like(at.input(0), axes=axes)


@_form_of("Split", until=18)
def _split(at: Site) -> tuple[str, ...] | None:
    """The sizes as an input, or an attribute before 13, in place of a number of outputs."""
    sizes = at.value(1).ravel().tolist() if at.has(1) else None
    if sizes is None and not at.has_attribute("num_outputs") and at.opset >= 13:
        return None
    if sizes is None and at.has_attribute("num_outputs"):
        parts = at.attribute("num_outputs", 1)
        shape = at.facts.shape(at.input(0))
        dim = at.known(shape, "the rank of input 0 is not known")[at.attribute("axis", 0)]
        whole = at.known(dim, "the dimension that is split is not fixed")
        size = -(-whole // parts)
        sizes = [size] * (parts - 1) + [whole - size * (parts - 1)]
        at.demand(sizes[-1] > 0, "a part would be empty")
    axis, parts = at.attribute("axis", 0), len(at.node.output)
    if sizes is None:
        return at.ops("Split", [at.input(0)], parts, axis=axis)
    if at.opset >= 13:
        return at.ops("Split", [at.input(0), at.integers(sizes)], parts, axis=axis)
    return at.ops("Split", [at.input(0)], parts, axis=axis, split=sizes)


@_form_of("Pad", until=18)
def _pad(at: Site) -> str | None:
    """Pads for every axis."""
    if not at.has(3):
        return None
    rank = at.rank(0)
    axes = [int(axis) % rank for axis in at.value(3).ravel()]
    pads = at.value(1).ravel().tolist()
    whole = [0] * (2 * rank)
    for place, axis in enumerate(axes):
        whole[axis], whole[axis + rank] = pads[place], pads[place + len(axes)]
    value = [at.input(2)] if at.has(2) else []
    return at.like(at.input(0), at.integers(whole), *value)


@_form_of("Resize", until=18)
def _resize(at: Site) -> str | None:
    """Scales or sizes for every axis; before 13, all inputs there."""
    axes = at.attribute("axes", [0]) if at.has_attribute("axes") else None
    if axes is None and at.opset >= 13:
        return None
    at.demand(at.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "it keeps the aspect ratio")
    scales, sizes = (at.value(slot) if at.has(slot) and at.value(slot).size else None for slot in (2, 3))
    if axes is not None:
        at.demand(not at.has(1) or not at.value(1).size, "it has a region of interest for some axes")
        shape = at.shape(0)
        places = [int(axis) % len(shape) for axis in axes]
        if scales is not None:
            scales = _spread(np.ones(len(shape), np.float32), places, scales)
        if sizes is not None:
            sizes = _spread(np.array(shape, np.int64), places, sizes)
    nothing = at.constant(np.zeros(0, np.float32)) if not at.has(1) or scales is None else ""
    roi = at.input(1) if at.has(1) else nothing
    last = [] if sizes is None else [at.constant(sizes)]
    return at.like(at.input(0), roi, nothing if scales is None else at.constant(scales), *last, axes=None)


def _spread(whole: np.ndarray, places: list[int], values: np.ndarray) -> np.ndarray:
    whole[places] = values
    return whole


@_form_of("Softmax LogSoftmax Hardmax", until=13)
def _softmax(at: Site) -> str:
    """Over the last axis, which means the same in all operator sets."""
    axis = at.attribute("axis", -1)
    if axis == -1:
        return at.like(at.input(0), axis=-1)
    rank = at.rank(0)
    if axis % rank == rank - 1:
        return at.like(at.input(0), axis=rank - 1)
    perm = list(range(rank))
    perm[axis % rank], perm[-1] = rank - 1, axis % rank
    return transpose(at, at.like(transpose(at, at.input(0), perm), axis=rank - 1), perm)


@_form_of("Dropout", until=12)
def _dropout(at: Site) -> str:
    """The ratio as an attribute, outside of training."""
    at.demand(not at.has(2) or not at.value(2).any(), "it is in training mode")
    at.demand(len(at.node.output) == 1, "its mask, which was another, is an output")
    return at.op("Dropout", at.input(0), ratio=float(at.value(1).item()) if at.has(1) else 0.5)


@_form_of("Shape", until=15)
def _shape(at: Site) -> str | None:
    """A part of the shape, by Slice."""
    if not at.has_attribute("start") and not at.has_attribute("end"):
        return None
    start = at.integers([at.attribute("start", 0)])
    end = at.integers([at.attribute("end", np.iinfo(np.int64).max)])
    return at.op("Slice", at.op("Shape", at.input(0)), start, end, at.integers([0]))


@_form_of("GridSample", until=20)
def _gridsample(at: Site) -> str:
    """The older names of the modes."""
    at.demand(at.rank(0) == 4, "it samples more than images")
    mode = at.attribute("mode", "linear")
    return at.like(at.input(0), at.input(1), mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode))


@_form_of("Reshape", until=14)
def _reshape(at: Site) -> str | None:
    """Without allowzero, where the shape has no zero."""
    if not at.attribute("allowzero", 0):
        return None
    at.demand(bool(at.value(1).all()), "a dimension of 0 stands for itself")
    return at.like(at.input(0), at.input(1), allowzero=None)


@_form_of("RoiAlign", until=16)
def _roialign(at: Site) -> str:
    """With the corners as older operator sets have them."""
    mode = at.attribute("coordinate_transformation_mode", "half_pixel")
    at.demand(mode == "output_half_pixel", "older operator sets place the corners elsewhere")
    return at.like(*at.inputs(), coordinate_transformation_mode=None)


@_form_of("CastLike", until=15)
def _castlike(at: Site) -> str:
    """Cast to the type of the other input."""
    return at.op("Cast", at.input(0), to=at.dtype(1))


@_form_of("QuantizeLinear DequantizeLinear", until=13)
def _quantiser(at: Site) -> None:
    """One scale for the whole tensor, which is all that there was."""
    at.demand(at.facts.shape(at.input(1)) in ((), (1,)), "it has a scale for each channel")


@_form_of("Constant", until=12)
def _constant(at: Site) -> str | None:
    """Numbers as a tensor."""
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for key in (name, name + "s"):
            if at.has_attribute(key):
                array = np.array(at.attribute(key, [0]), dtype)
                return at.op("Constant", value=helper.make_tensor("", _DTYPE[dtype], array.shape, array.ravel()))
    return None


_DTYPE = {np.float32: 1, np.int64: 7}
