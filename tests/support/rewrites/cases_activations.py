"""Activations, Erf and Gelu, inside and just outside of the rules' conditions."""

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, case, floats, node, opset, shape

DrawFn = st.DrawFn
#: Beside the usual ones: where exponentials overflow and where results saturate.
EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e38, -1e38, 88.0, -88.0, 100.0, -100.0, 3.0, -3.0, -2.9999)


def _drawn(draw: DrawFn) -> np.ndarray:
    return floats(draw, shape(draw, 0), edges=EDGES)


def _half(op: str, version: int = 17, **attributes: object):
    return lambda draw: node(op, floats(draw, shape(draw), dtype=np.float16), opset=version, **attributes)


@case("hardswish-hardsigmoid", _half("HardSwish"))
def _(draw: DrawFn) -> Instance:
    return node("HardSwish", _drawn(draw), opset=opset(draw, 14, 17, 22))


@case("hardswish-clip", _half("HardSwish"))
def _(draw: DrawFn) -> Instance:
    return node("HardSwish", _drawn(draw), opset=opset(draw, 14, 17, 22))


@case("hardswish-relu6", _half("HardSwish"))
def _(draw: DrawFn) -> Instance:
    x = _drawn(draw)
    return node("HardSwish", x, opset=opset(draw, 14, 17, 22), scale=np.abs(x))


@case("hardsigmoid-clip", lambda draw: node("HardSigmoid", _drawn(draw), alpha=0.0))
def _(draw: DrawFn) -> Instance:
    chosen = draw(st.sampled_from([{}, {"alpha": 1 / 6}, {"alpha": -0.3, "beta": 0.1}, {"beta": 2.0}]))
    return node("HardSigmoid", _drawn(draw), opset=opset(draw, 7, 11, 17, 22), **chosen)


@case("swish-sigmoid", _half("Swish", 24))
def _(draw: DrawFn) -> Instance:
    return node("Swish", _drawn(draw), opset=24, alpha=draw(st.sampled_from([1.0, 1.702, -0.5])))


@case("mish-softplus", _half("Mish", 18))
def _(draw: DrawFn) -> Instance:
    return node("Mish", _drawn(draw), opset=opset(draw, 18, 22))


def _softplus_scale(x: np.ndarray) -> np.ndarray:
    return 1 + np.maximum(x.astype(np.float64), 0)


@case("softplus-exp", _half("Softplus"))
def _(draw: DrawFn) -> Instance:
    x = _drawn(draw)
    return node("Softplus", x, opset=opset(draw), scale=_softplus_scale(x))


@case("softsign-div", _half("Softsign"))
def _(draw: DrawFn) -> Instance:
    return node("Softsign", _drawn(draw), opset=opset(draw))


@case("relu-max", _half("Relu"))
def _(draw: DrawFn) -> Instance:
    return node("Relu", _drawn(draw), opset=opset(draw, 9, 13, 17))


@case("relu-clip", _half("Relu"))
def _(draw: DrawFn) -> Instance:
    return node("Relu", _drawn(draw), opset=opset(draw, 9, 13, 17))


@case("leakyrelu-relu", lambda draw: node("LeakyRelu", _drawn(draw), alpha=draw(st.sampled_from([np.inf, np.nan]))))
def _(draw: DrawFn) -> Instance:
    alpha = draw(st.sampled_from([0.01, 0.0, 0.3, 1.0, -0.2, 2.5]))
    return node("LeakyRelu", _drawn(draw), opset=opset(draw), alpha=alpha)


@case("leakyrelu-max", lambda draw: node("LeakyRelu", _drawn(draw), alpha=draw(st.sampled_from([0.0, 1.5, -0.2]))))
def _(draw: DrawFn) -> Instance:
    alpha = draw(st.sampled_from([0.01, 0.3, 0.999, 1e-9]))
    return node("LeakyRelu", _drawn(draw), opset=opset(draw, 8, 11, 17), alpha=alpha)


def _prelu_of_computed_slope(draw: DrawFn) -> Instance:
    x = _drawn(draw)
    return node("PRelu", x, x)


@case("prelu-relu", _prelu_of_computed_slope)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw, 2)
    x = floats(draw, dims, edges=EDGES)
    slope = floats(
        draw, draw(st.sampled_from([(1,), (*dims[:1], *[1] * (len(dims) - 1))[1:], dims])), edges=(0.0, 0.25)
    )
    return node("PRelu", x, Constant(slope), opset=opset(draw, 7, 9, 16))


def _of_alpha(draw: DrawFn, op: str, factor: float, version: int, **attributes: float) -> Instance:
    x = _drawn(draw)
    return node(op, x, opset=version, scale=abs(factor) + np.abs(x), **attributes)


@case("elu-exp", _half("Elu"))
def _(draw: DrawFn) -> Instance:
    alpha = draw(st.sampled_from([1.0, 0.3, 2.0, -1.0]))
    return _of_alpha(draw, "Elu", alpha, opset(draw), alpha=alpha)


@case("celu-exp", lambda draw: node("Celu", _drawn(draw), alpha=draw(st.sampled_from([1e-9, -1.0]))))
def _(draw: DrawFn) -> Instance:
    alpha = draw(st.sampled_from([1.0, 0.3, 2.0]))
    return _of_alpha(draw, "Celu", alpha, opset(draw, 12, 17), alpha=alpha)


@case("selu-exp", _half("Selu"))
def _(draw: DrawFn) -> Instance:
    return _of_alpha(draw, "Selu", 1.8, opset(draw))


@case("thresholdedrelu-where", _half("ThresholdedRelu"))
def _(draw: DrawFn) -> Instance:
    alpha = draw(st.sampled_from([1.0, 0.0, 3.0]))
    return node("ThresholdedRelu", _drawn(draw), opset=opset(draw, 10, 13, 22), alpha=alpha)


@case("tanh-sigmoid", _half("Tanh"))
def _(draw: DrawFn) -> Instance:
    return node("Tanh", _drawn(draw), opset=opset(draw), scale=1.0)


@case("sigmoid-tanh", _half("Sigmoid"))
def _(draw: DrawFn) -> Instance:
    return node("Sigmoid", _drawn(draw), opset=opset(draw), scale=1.0)


@case("sigmoid-exp", _half("Sigmoid"))
def _(draw: DrawFn) -> Instance:
    return node("Sigmoid", _drawn(draw), opset=opset(draw), scale=1.0)


@case("erf-exp", _half("Erf"))
def _(draw: DrawFn) -> Instance:
    return node("Erf", floats(draw, shape(draw, 0), spread=2, edges=EDGES), opset=opset(draw, 9, 13, 17))


@case("erf-tanh", _half("Erf"))
def _(draw: DrawFn) -> Instance:
    return node("Erf", floats(draw, shape(draw, 0), spread=2, edges=EDGES), opset=opset(draw, 9, 13, 17))


@case("erf-tanh-closer", _half("Erf"))
def _(draw: DrawFn) -> Instance:
    return node("Erf", floats(draw, shape(draw, 0), spread=2, edges=EDGES), opset=opset(draw, 9, 13, 17))


def _tanh_gelu(draw: DrawFn) -> Instance:
    return node("Gelu", _drawn(draw), opset=20, approximate="tanh")


def _exact_gelu(draw: DrawFn) -> Instance:
    return node("Gelu", _drawn(draw), opset=20)


@case("gelu-erf", _tanh_gelu)
def _(draw: DrawFn) -> Instance:
    x = _drawn(draw)
    if draw(st.booleans()):
        return node("Gelu", x, domain="com.microsoft", scale=np.abs(x))
    return node("Gelu", x, opset=opset(draw, 20, 22), scale=np.abs(x))


@case("gelu-tanh", _tanh_gelu)
def _(draw: DrawFn) -> Instance:
    if draw(st.booleans()):
        return node("Gelu", _drawn(draw), domain="com.microsoft")
    return node("Gelu", _drawn(draw), opset=opset(draw, 20, 22), approximate="none")


@case("gelu-tanh-parts", _exact_gelu)
def _(draw: DrawFn) -> Instance:
    x = _drawn(draw)
    return node("Gelu", x, opset=opset(draw, 20, 22), approximate="tanh", scale=np.abs(x))
