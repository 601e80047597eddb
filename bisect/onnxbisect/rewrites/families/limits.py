"""Max, Min and Clip by one another or by Relu."""

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound, Domain, Values
from onnxbisect.rewrites.forms import pairwise, rounded
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import operator

#: Values up to this do not overflow in a sum or difference of two.
_FAR_FROM_OVERFLOW = 1e37


@pytorch("torch.maximum(torch.maximum(a, b), c)")
@rule("Max Min -> Max Min", Exactness.EXACT, rank=31, source=operator("Max"))
def max_pairs(at: Site) -> str:
    """More than two inputs, two at a time."""
    at.demand(len(at.inputs()) > 2, "there are no more than two inputs")
    return pairwise(at, at.node.op_type)


def _is_small(values: Values) -> bool:
    return all(value is not None and bool(np.all(np.abs(value) < _FAR_FROM_OVERFLOW)) for value in values)


_SMALL = Domain(text="no NaN; magnitudes below 1e37", holds=_is_small)


@pytorch("torch.relu(a - b) + b instead of torch.maximum(a, b)")
@rule(
    "Max -> Sub Relu Add",
    Exactness.DOMAIN,
    Bound(epsilons=1, of="the larger magnitude of the two inputs"),
    domain=_SMALL,
    rank=31,
    source=operator("Max"),
)
def max_relu(at: Site) -> str:
    """Relu(a - b) + b, of two inputs."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(len(at.inputs()) == 2, "there are not two inputs")
    return at.op("Add", at.op("Relu", at.op("Sub", at.input(0), at.input(1))), at.input(1))


@pytorch("a - torch.relu(a - b) instead of torch.minimum(a, b)")
@rule(
    "Min -> Sub Relu",
    Exactness.DOMAIN,
    Bound(epsilons=1, of="the larger magnitude of the two inputs"),
    domain=_SMALL,
    rank=31,
    source=operator("Min"),
)
def min_relu(at: Site) -> str:
    """a - Relu(a - b), of two inputs."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(len(at.inputs()) == 2, "there are not two inputs")
    return at.op("Sub", at.input(0), at.op("Relu", at.op("Sub", at.input(0), at.input(1))))


def _limits(at: Site) -> tuple[float | None, float | None]:
    """The constant bounds of a Clip, None for one that is left out."""
    if at.opset < 11:
        return (
            at.attribute("min", 0.0) if at.has_attribute("min") else None,
            at.attribute("max", 0.0) if at.has_attribute("max") else None,
        )
    low, high = (float(at.value(slot)) if at.has(slot) else None for slot in (1, 2))
    at.demand(low is None or high is None or low <= high, "the lower limit is above the upper one")
    return low, high


@pytorch("torch.minimum(torch.maximum(x, low), high) instead of x.clamp(low, high)")
@rule("Clip -> Max Min", Exactness.EXACT, rank=31, source=operator("Clip"))
def clip_max_min(at: Site) -> str:
    """Max with the lower and Min with the upper limit."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    low, high = _limits(at)
    # a limit that is left out is the largest finite number, so that infinity does not pass
    largest = float(np.finfo(at.value_dtype(0)).max)
    low, high = -largest if low is None else low, largest if high is None else high
    at.demand(0.0 not in (low, high), "of 0 and -0, Max and Min may take the other")
    return at.op("Min", at.op("Max", at.input(0), at.scalar(low)), at.scalar(high))


@pytorch("torch.minimum(torch.maximum(x, low), high) instead of x.clamp(low, high)")
@rule(
    "Clip -> Max Min",
    Exactness.ROUNDING,
    Bound(note="the sign of zero may differ; a limit that is NaN makes NaN, as ONNX defines it"),
    rank=31,
    source=operator("Clip"),
)
def clip_max_min_any(at: Site) -> str:
    """Max with the lower and Min with the upper limit, which may be zero or computed."""
    at.demand_dtype(TensorProto.FLOAT, TensorProto.DOUBLE)
    largest = float(np.finfo(at.value_dtype(0)).max)
    if at.opset < 11:
        low, high = _limits(at)
        tensors = [at.scalar(-largest if low is None else low), at.scalar(largest if high is None else high)]
    else:
        ends = ((1, -largest), (2, largest))
        tensors = [at.input(slot) if at.has(slot) else at.scalar(end) for slot, end in ends]
    return at.op("Min", at.op("Max", at.input(0), tensors[0]), tensors[1])


@pytorch("high - torch.relu(high - low - torch.relu(x - low)) instead of x.clamp(low, high)")
@rule(
    "Clip -> Sub Relu Add",
    Exactness.ROUNDING,
    Bound(epsilons=1.5, of="the magnitudes of the two limits together", note="the sign of zero may differ"),
    rank=31,
    source=operator("Clip"),
)
def clip_relu(at: Site) -> str:
    """high - Relu(high - low - Relu(x - low)), which stays finite at infinity."""
    at.demand_dtype(TensorProto.FLOAT)
    low, high = _limits(at)
    at.demand(low is not None and high is not None, "a limit is left out")
    low, high = at.known(low, "no lower limit"), at.known(high, "no upper limit")
    at.demand(max(abs(low), abs(high)) < _FAR_FROM_OVERFLOW, "a limit is too large")
    x = at.input(0)
    above = at.op("Relu", at.op("Sub", x, at.scalar(low)) if low else x)
    short = at.op("Relu", at.op("Sub", at.scalar(rounded(high - low, at)), above))
    return at.op("Sub", at.scalar(high), short)
