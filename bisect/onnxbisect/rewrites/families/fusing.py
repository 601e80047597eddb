"""Several nodes as the one op that they are the parts of, for targets that have the op and not the parts."""

from math import pi, sqrt

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import Bound, Domain, Values
from onnxbisect.rewrites.families.normalisation import OF_ROW
from onnxbisect.rewrites.patterns import AnyConstant, Pattern, part
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import OLIVE, tidl

_FUSION = "https://github.com/microsoft/onnxscript/tree/main/onnxscript/rewriter/rules/fusion"


def _gelu(grown: Pattern) -> Pattern:
    """x/2 times a sum, in whichever order."""
    return (
        part("Mul", part("Mul", "x", grown), 0.5),
        part("Mul", part("Mul", "x", 0.5), grown),
        part("Mul", "x", part("Mul", grown, 0.5)),
    )


_ERF = part("Erf", (part("Div", "x", sqrt(2)), part("Mul", "x", sqrt(0.5))))
_CUBE = (part("Pow", "x", 3.0), part("Mul", part("Mul", "x", "x"), "x"), part("Mul", "x", part("Mul", "x", "x")))
_SQUARE = (part("Pow", "x", 2.0), part("Mul", "x", "x"))
_BENT = (
    part("Add", "x", part("Mul", _CUBE, 0.044715)),
    part("Mul", "x", part("Add", part("Mul", _SQUARE, 0.044715), 1.0)),
)
_TANH = part("Tanh", part("Mul", _BENT, sqrt(2 / pi)))

_CENTRED = part("Sub", "x", part("ReduceMean", "x", name="mean"))
_SPREAD = part("ReduceMean", (part("Pow", _CENTRED, 2.0), part("Mul", _CENTRED, _CENTRED)), name="square")
_STANDARDISED = part(
    "Div",
    part("Sub", "x", part("ReduceMean", "x", name="other")),
    part("Sqrt", part("Add", _SPREAD, AnyConstant("eps"))),
)
_ROOT = part("Sqrt", part("Add", part("ReduceMean", _SQUARE, name="square"), AnyConstant("eps")))
_SCALED = (part("Div", "x", _ROOT), part("Mul", "x", (part("Div", 1.0, _ROOT), part("Reciprocal", _ROOT))))

_SIX = part("Clip", part("Add", "x", 3.0), 0.0, 6.0)
_GATE = part("HardSigmoid", "x", name="gate")


def _all_finite(values: Values) -> bool:
    return all(value is not None and bool(np.isfinite(value).all()) for value in values)


@pytorch("opset_version=20, at which F.gelu(x) is exported as Gelu")
@rule(
    "-> Gelu",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the input"),
    pattern=_gelu(part("Add", _ERF, 1.0)),
    rank=12,
    source=tidl("gelu.py"),
)
def gelu_fuse(at: Site) -> str:
    """x/2 times 1 + Erf(x/sqrt 2), written out, as Gelu; from operator set 20 on."""
    at.demand_dtype(TensorProto.FLOAT)
    return at.op("Gelu", at.matched("x"))


@pytorch('opset_version=20, at which F.gelu(x, approximate="tanh") is exported as Gelu')
@rule(
    "-> Gelu",
    Exactness.ROUNDING,
    Bound(epsilons=6, of="the input"),
    pattern=_gelu(part("Add", _TANH, 1.0)),
    rank=12,
    source=tidl("gelu.py"),
)
def gelu_tanh_fuse(at: Site) -> str:
    """The tanh form of Gelu, written out, as Gelu; from operator set 20 on."""
    at.demand_dtype(TensorProto.FLOAT)
    return at.op("Gelu", at.matched("x"), approximate="tanh")


@pytorch("opset_version=17, at which F.layer_norm is exported as LayerNormalization")
@rule(
    "-> LayerNormalization",
    Exactness.ROUNDING,
    OF_ROW,
    pattern=(
        part("Add", part("Mul", _STANDARDISED, AnyConstant("gamma")), AnyConstant("beta")),
        part("Mul", _STANDARDISED, AnyConstant("gamma")),
        _STANDARDISED,
    ),
    rank=12,
    source=_FUSION,
)
def layernorm_fuse(at: Site) -> str:
    """The mean taken off, divided by the root of the mean square, times gamma, plus beta, as LayerNormalization; from
    operator set 17 on.
    """
    axis = _last_axes(at, "mean", "other", "square")
    tensors = [at.matched("x"), _of_row(at, "gamma", axis, 1.0)]
    if at.has_matched("beta"):
        tensors.append(_of_row(at, "beta", axis, 0.0))
    return at.op("LayerNormalization", *tensors, axis=axis, epsilon=_epsilon(at))


@pytorch("opset_version=23, at which F.rms_norm is exported as RMSNormalization")
@rule(
    "-> RMSNormalization",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the output, times the number of terms"),
    pattern=(part("Mul", _SCALED, AnyConstant("gamma")), _SCALED),
    rank=12,
    source=OLIVE,
)
def rmsnorm_fuse(at: Site) -> str:
    """Divided by the root of the mean square, times gamma, as RMSNormalization; from operator set 23 on."""
    axis = _last_axes(at, "square")
    return at.op("RMSNormalization", at.matched("x"), _of_row(at, "gamma", axis, 1.0), axis=axis, epsilon=_epsilon(at))


@pytorch("F.hardswish(x) with opset_version=14, instead of x * (F.relu6(x + 3) / 6)")
@rule(
    "-> HardSwish",
    Exactness.ROUNDING,
    Bound(epsilons=2, of="the input", absolute=1.5e-45),
    pattern=(
        part("Mul", "x", _GATE),
        part("Mul", "x", (part("Div", _SIX, 6.0), part("Mul", _SIX, 1 / 6))),
    ),
    rank=12,
    source=_FUSION,
)
def hardswish_fuse(at: Site) -> str:
    """x times HardSigmoid(x), or times Clip(x + 3, 0, 6)/6, as HardSwish; from operator set 14 on."""
    at.demand_dtype(TensorProto.FLOAT)
    if at.has_part("gate"):
        gate = at.part("gate")
        slope, middle = gate.attribute("alpha", 0.2), gate.attribute("beta", 0.5)
        at.demand(np.float32(slope) == np.float32(1 / 6) and middle == 0.5, "the slope is not that of HardSwish")
    return at.op("HardSwish", at.matched("x"))


@pytorch("F.hardswish(x) with opset_version=14, instead of x * F.relu6(x + 3) / 6")
@rule(
    "-> HardSwish",
    Exactness.DOMAIN,
    Bound(epsilons=2, of="the input", absolute=1.5e-45),
    domain=Domain(text="no NaN or infinity, nor a number so large that six times it is", holds=_all_finite),
    pattern=(part("Div", part("Mul", "x", _SIX), 6.0), part("Mul", part("Mul", "x", _SIX), 1 / 6)),
    rank=12,
    source=_FUSION,
)
def hardswish_product_fuse(at: Site) -> str:
    """x times Clip(x + 3, 0, 6), and then by 6, as HardSwish, which does not overflow; from operator set 14 on."""
    at.demand_dtype(TensorProto.FLOAT)
    return at.op("HardSwish", at.matched("x"))


@pytorch("F.silu(x), where opset_version=24 exports it as Swish")
@rule("-> Swish", Exactness.EXACT, pattern=part("Mul", "x", part("Sigmoid", "x")), rank=12, source=_FUSION)
def swish_fuse(at: Site) -> str:
    """x times Sigmoid(x) as Swish; from operator set 24 on."""
    at.demand_dtype(TensorProto.FLOAT)
    return at.op("Swish", at.matched("x"))


@pytorch("F.pixel_shuffle(x, 2) instead of x.reshape(…).permute(…).reshape(…)")
@rule(
    "-> DepthToSpace",
    Exactness.EXACT,
    pattern=part("Reshape", part("Transpose", part("Reshape", "x", name="first"), name="turn")),
    rank=12,
    source=tidl("reshp_tr_reshp.py"),
)
def depthtospace_fuse(at: Site) -> str:
    """Reshape, Transpose and Reshape that move channels into space, as DepthToSpace."""
    batch, channels, height, width = _image(at)
    perm: list[int] = at.part("turn").attribute("perm", [])
    taller = at.output_shape()[2]
    block = taller // height
    depth = channels // block**2 if block else 0
    orders = {
        "DCR": ([batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]),
        "CRD": ([batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]),
    }
    found = [mode for mode, order in orders.items() if order == (list(at.part("first").output_shape()), perm)]
    at.demand(bool(found) and at.output_shape() == (batch, depth, height * block, width * block), _OTHER_ORDER)
    return at.op("DepthToSpace", at.matched("x"), blocksize=block, mode=found[0])


@pytorch("F.pixel_unshuffle(x, 2), with the channels in the order of SpaceToDepth")
@rule(
    "-> SpaceToDepth",
    Exactness.EXACT,
    pattern=part("Reshape", part("Transpose", part("Reshape", "x", name="first"), name="turn")),
    rank=12,
    source=tidl("reshp_tr_reshp.py"),
)
def spacetodepth_fuse(at: Site) -> str:
    """Reshape, Transpose and Reshape that move space into channels, as SpaceToDepth."""
    batch, channels, height, width = _image(at)
    perm: list[int] = at.part("turn").attribute("perm", [])
    lower = at.output_shape()[2]
    block = height // lower
    at.demand(block > 0, _OTHER_ORDER)
    at.demand(
        perm == [0, 3, 5, 1, 2, 4]
        and at.part("first").output_shape() == (batch, channels, lower, block, width // block, block)
        and at.output_shape() == (batch, channels * block**2, lower, width // block),
        _OTHER_ORDER,
    )
    return at.op("SpaceToDepth", at.matched("x"), blocksize=block)


_OTHER_ORDER = "the axes are moved in another way"


def _image(at: Site) -> tuple[int, ...]:
    """The shape of the input; it and the output are images that are not empty."""
    shape = at.part("first").shape(0)
    at.demand(len(shape) == len(at.output_shape()) == 4 and 0 not in shape, "it is no image")
    return shape


def _last_axes(at: Site, *means: str) -> int:
    """The first of the axes that all these reductions go over, which are the last ones; it is negative."""
    at.demand_dtype(TensorProto.FLOAT)
    rank = at.part(means[0]).rank(0)
    found = {at.part(mean).axes(rank) for mean in means}
    axes = found.pop()
    at.demand(axes is not None and not found, "the reductions are not over the same axes")
    first = rank - len(axes or ())
    at.demand(axes == tuple(range(first, rank)) and first < rank, "the reduction is not over the last axes")
    at.demand(all(at.part(mean).attribute("keepdims", 1) for mean in means), "the reduced axes are not kept")
    return first - rank


def _of_row(at: Site, name: str, axis: int, default: float) -> str:
    """A constant of the pattern, or the default where it has none, in the shape of a row."""
    dims = at.output_shape()[axis:]
    stored = at.facts.value(at.matched(name)) if at.has_matched(name) else np.array(default, np.float32)
    value = at.known(stored, f"{name} is not a constant")
    at.demand(set(value.shape[:axis]) <= {1}, f"{name} is not the same for all rows")
    return at.constant(np.broadcast_to(value.reshape(value.shape[axis:]), dims))


def _epsilon(at: Site) -> float:
    value = at.known(at.facts.value(at.matched("eps")), "epsilon is not a constant")
    at.demand(value.size == 1, "epsilon is not one number")
    return float(value.reshape(()))
