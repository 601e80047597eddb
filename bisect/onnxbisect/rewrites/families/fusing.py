"""Several nodes as the one op that they are the parts of, for targets that have the op and not the parts."""

from collections.abc import Sequence
from math import pi, prod, sqrt

import numpy as np
from onnx import TensorProto, helper

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.families.normalisation import OF_ROW
from onnxbisect.rewrites.patterns import AnyConstant, Pattern, part
from onnxbisect.rewrites.rule import OLIVE, Bound, Domain, pytorch, rule, tidl
from onnxbisect.rewrites.site import Site

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
_WIDE = part("Cast", part("Sub", "x", part("ReduceMean", "x", name="mean")), name="wide")
_WIDE_SPREAD = part("ReduceMean", (part("Pow", _WIDE, 2.0), part("Mul", _WIDE, _WIDE)), name="square")
_STANDARDISED_WIDE = part(
    "Cast",
    part(
        "Div",
        part("Cast", part("Sub", "x", part("ReduceMean", "x", name="other"))),
        part("Sqrt", part("Add", _WIDE_SPREAD, AnyConstant("eps"))),
    ),
)
_ROOT = part("Sqrt", part("Add", part("ReduceMean", _SQUARE, name="square"), AnyConstant("eps")))
_SCALED = (part("Div", "x", _ROOT), part("Mul", "x", (part("Div", 1.0, _ROOT), part("Reciprocal", _ROOT))))

_SIX = part("Clip", part("Add", "x", 3.0), 0.0, 6.0)
_GATE = part("HardSigmoid", "x", name="gate")


#: Types in which a rule here is shown to hold: the parts round to them after each step, the whole op does so once.
_ROUNDED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: The largest number whose square is one in float16.
_SQUARED = 255.0
#: How much epsilon, times the length of a row, must be in float16, for squares that it makes 0 not to be missed.
_ABSORBS = 3e-5


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
    at.demand_dtype(*_ROUNDED)
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
    at.demand_dtype(*_ROUNDED)
    return at.op("Gelu", at.matched("x"), approximate="tanh")


def _shifted(standardised: Pattern) -> tuple[Pattern, ...]:
    """With gamma and beta, with gamma, or with neither."""
    scaled = part("Mul", standardised, AnyConstant("gamma"))
    return (part("Add", scaled, AnyConstant("beta")), scaled, standardised)


def _layernorm(at: Site, *dtypes: int) -> str:
    axis = _last_axes(at, dtypes, "mean", "other", "square")
    tensors = [at.matched("x"), _of_row(at, "gamma", axis, 1.0)]
    if at.has_matched("beta"):
        tensors.append(_of_row(at, "beta", axis, 0.0))
    return at.op("LayerNormalization", *tensors, axis=axis, epsilon=_epsilon(at))


@pytorch("opset_version=17, at which F.layer_norm is exported as LayerNormalization")
@rule(
    "-> LayerNormalization",
    Exactness.ROUNDING,
    OF_ROW,
    pattern=(*_shifted(_STANDARDISED), *_shifted(_STANDARDISED_WIDE)),
    rank=12,
    source=_FUSION,
)
def layernorm_fuse(at: Site) -> str:
    """The mean taken off, divided by the root of the mean square, times gamma, plus beta, as LayerNormalization; from
    operator set 17 on.
    """
    return _layernorm(at, TensorProto.FLOAT, TensorProto.BFLOAT16)


@pytorch("opset_version=17, at which F.layer_norm is exported as LayerNormalization")
@rule(
    "-> LayerNormalization",
    Exactness.DOMAIN,
    # below 6e-5 float16 has no more digits, but steps
    Bound(
        epsilons=2,
        of="gamma times the number of terms times r plus r², r the largest input plus 6e-5 by the deviation, plus beta",
    ),
    pattern=(*_shifted(_STANDARDISED), *_shifted(_STANDARDISED_WIDE)),
    domain=Domain(
        text="numbers within 255 of each other, whose squares float16 has",
        holds=lambda values: (
            values[0] is not None
            and (not values[0].size or bool(float(values[0].max()) - float(values[0].min()) <= _SQUARED))
        ),
    ),
    rank=12,
    source=_FUSION,
)
def layernorm_half_fuse(at: Site) -> str:
    """The parts of LayerNormalization in float16, where the square of 256 is infinite, as LayerNormalization."""
    at.demand(_absorbs(at), "epsilon is too small for float16")
    return _layernorm(at, TensorProto.FLOAT16)


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
    return _rmsnorm(at, TensorProto.FLOAT, TensorProto.BFLOAT16)


@pytorch("F.rms_norm is exported as RMSNormalization at opset_version=23")
@rule(
    "-> RMSNormalization",
    Exactness.DOMAIN,
    Bound(epsilons=2, of="the output plus 6e-5 gamma, times the number of terms plus 2", absolute=6e-8),
    pattern=(part("Mul", _SCALED, AnyConstant("gamma")), _SCALED),
    domain=Domain(
        text="no number beyond 255, whose square float16 has, and no NaN",
        holds=lambda values: values[0] is not None and bool((np.abs(values[0]) <= _SQUARED).all()),
    ),
    rank=12,
    source=OLIVE,
)
def rmsnorm_half_fuse(at: Site) -> str:
    """The parts of RMSNormalization in float16, where the square of 256 is infinite, as RMSNormalization."""
    at.demand(_absorbs(at), "epsilon is too small for float16")
    return _rmsnorm(at, TensorProto.FLOAT16)


def _rmsnorm(at: Site, *dtypes: int) -> str:
    axis = _last_axes(at, dtypes, "square")
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
    at.demand_dtype(*_ROUNDED)
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
    domain=Domain(
        text="no NaN or infinity, nor a number so large that six times it is",
        holds=lambda values: values[0] is not None and bool(np.isfinite(values[0] * values[0].dtype.type(6)).all()),
    ),
    pattern=(part("Div", part("Mul", "x", _SIX), 6.0), part("Mul", part("Mul", "x", _SIX), 1 / 6)),
    rank=12,
    source=_FUSION,
)
def hardswish_product_fuse(at: Site) -> str:
    """x times Clip(x + 3, 0, 6), and then by 6, as HardSwish, which does not overflow; from operator set 14 on."""
    at.demand_dtype(*_ROUNDED)
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


def _last_axes(at: Site, dtypes: Sequence[int], *means: str) -> int:
    """The first of the axes that all these reductions go over, which are the last ones; it is negative."""
    at.part(means[0]).demand_dtype(*dtypes)
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
    dtype = helper.tensor_dtype_to_np_dtype(at.known(at.facts.dtype(at.matched("x")), "the type is not known"))
    stored = at.facts.value(at.matched(name)) if at.has_matched(name) else np.array(default, dtype)
    value = at.known(stored, f"{name} is not a constant")
    at.demand(set(value.shape[:axis]) <= {1}, f"{name} is not the same for all rows")
    return at.constant(np.broadcast_to(value.reshape(value.shape[axis:]), dims))


def _epsilon(at: Site) -> float:
    value = at.known(at.facts.value(at.matched("eps")), "epsilon is not a constant")
    at.demand(value.size == 1, "epsilon is not one number")
    return float(value.reshape(()))


def _absorbs(at: Site) -> bool:
    """Whether epsilon outweighs what is lost where float16 makes squares 0."""
    row = at.part("square")
    return _epsilon(at) * prod(row.shape(0)[axis] for axis in row.axes(row.rank(0)) or ()) >= _ABSORBS
