"""Softmax and LogSoftmax on another axis, and as Exp, Log and reductions."""

from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound
from onnxbisect.rewrites.forms import reduce, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import FLOATS, Site
from onnxbisect.rewrites.sources import operator, tidl

#: The operator set from which Softmax works along one axis; before, along all from its axis on.
_ONE_AXIS = 13


def _axis(at: Site) -> int:
    """The axis along which the node normalises."""
    rank = at.rank(0)
    at.demand(rank > 0, "the input is a scalar")
    axis = at.axis(rank, -1 if at.opset >= _ONE_AXIS else 1)
    at.demand(at.opset >= _ONE_AXIS or axis == rank - 1, "it works along several axes")
    return axis


@pytorch("x.transpose(1, -1).softmax(-1).transpose(1, -1) instead of x.softmax(1)")
@rule(
    "Softmax LogSoftmax -> Transpose Softmax LogSoftmax",
    Exactness.ROUNDING,
    Bound(epsilons=2),
    rank=39,
    source=tidl("softmax.py"),
)
def softmax_last_axis(at: Site) -> str:
    """The axis moved to the end and back."""
    at.demand_dtype(*FLOATS)
    axis, rank = _axis(at), at.rank(0)
    at.demand(axis != rank - 1, "it is the last axis")
    swapped = [*range(axis), rank - 1, *range(axis + 1, rank - 1), axis]
    moved = at.op(at.node.op_type, transpose(at, at.input(0), swapped), axis=-1)
    return transpose(at, moved, swapped)


@pytorch("e = (x - x.amax(dim, True)).exp(); e / e.sum(dim, True) instead of x.softmax(dim)")
@rule(
    "Softmax -> ReduceMax Sub Exp ReduceSum Div",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the output, times the length of the axis", absolute=1e-37),
    rank=39,
    source=operator("Softmax"),
)
def softmax_parts(at: Site) -> str:
    """Exponentials relative to the largest, by their sum."""
    at.demand_dtype(TensorProto.FLOAT)
    x, axis = at.input(0), _axis(at)
    grown = at.op("Exp", at.op("Sub", x, reduce(at, "ReduceMax", x, [axis], keepdims=True)))
    return at.op("Div", grown, reduce(at, "ReduceSum", grown, [axis], keepdims=True))


@pytorch("y = x - x.amax(dim, True); y - y.exp().sum(dim, True).log() instead of x.log_softmax(dim)")
@rule(
    "LogSoftmax -> ReduceMax Sub Exp ReduceSum Log",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the largest input, the output and the length of the axis together"),
    rank=39,
    source=operator("LogSoftmax"),
)
def logsoftmax_parts(at: Site) -> str:
    """The input relative to the largest, less the logarithm of the sum of its exponentials."""
    at.demand_dtype(TensorProto.FLOAT)
    x, axis = at.input(0), _axis(at)
    below = at.op("Sub", x, reduce(at, "ReduceMax", x, [axis], keepdims=True))
    return at.op("Sub", below, at.op("Log", reduce(at, "ReduceSum", at.op("Exp", below), [axis], keepdims=True)))
