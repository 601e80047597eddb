"""Normalisations, inside and just outside of the rules' conditions."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import Constant, Instance, case, floats, integers, node, opset, shape
from support.rewrites.measured import outputs_of

DrawFn = st.DrawFn
#: Squares of these and of their differences neither overflow nor vanish.
EDGES = (0.0, -0.0, 1.0, -1.0, 1e4, -1e4, 1e-4, np.nan, np.inf)


def of_row(
    x: np.ndarray, axes: tuple[int, ...], epsilon: float, gamma: np.ndarray, beta: np.ndarray, *, least: float = 0.0
) -> np.ndarray:
    """Gamma times the number of terms times r plus r², r the largest input plus `least` by the deviation, plus beta."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        deviation = np.sqrt(wide.var(axis=axes, keepdims=True) + epsilon)
        largest = np.abs(wide).max(axis=axes, keepdims=True) + least
        terms = np.prod([x.shape[axis] for axis in axes])
        ratio = largest / deviation
        return (ratio + ratio**2) * terms * np.abs(gamma) + np.abs(beta) + 0 * np.abs(wide)


def _weights(draw: DrawFn, *dims: int) -> np.ndarray:
    return floats(draw, dims, edges=(0.0, 1.0), spread=1)


def _epsilon(draw: DrawFn) -> dict[str, float]:
    return draw(st.sampled_from([{}, {"epsilon": 1e-3}]))


def _layernorm(draw: DrawFn, *, outputs: int = 1) -> Instance:
    dims = shape(draw)
    axis = draw(st.integers(0, len(dims) - 1))
    x, gamma, beta = floats(draw, dims, edges=EDGES), _weights(draw, *dims[axis:]), _weights(draw, *dims[axis:])
    epsilon = _epsilon(draw)
    scale = of_row(x, tuple(range(axis, len(dims))), epsilon.get("epsilon", 1e-5), gamma, beta)
    given = [Constant(gamma), *([Constant(beta)] if draw(st.booleans()) else [])]
    named = axis - draw(st.sampled_from([0, len(dims)]))
    return node(
        "LayerNormalization",
        x,
        *given,
        axis=named,
        outputs=outputs,
        opset=opset(draw, 17, 18, 21),
        scale=scale,
        **epsilon,
    )


@case("layernorm-parts", lambda draw: _layernorm(draw, outputs=3))
def _(draw: DrawFn) -> Instance:
    return _layernorm(draw)


def _instancenorm(draw: DrawFn, *, rank: int = 3, version: tuple[int, ...] = (7, 11, 17, 22)) -> Instance:
    dims = shape(draw, rank, 4)
    x, gamma, beta = floats(draw, dims, edges=EDGES), _weights(draw, dims[1]), _weights(draw, dims[1])
    epsilon = _epsilon(draw)
    inner = (-1, *[1] * (len(dims) - 2))
    scale = of_row(
        x, tuple(range(2, len(dims))), epsilon.get("epsilon", 1e-5), gamma.reshape(inner), beta.reshape(inner)
    )
    return node("InstanceNormalization", x, Constant(gamma), beta, opset=opset(draw, *version), scale=scale, **epsilon)


def _instancenorm_of_halves(draw: DrawFn) -> Instance:
    x = floats(draw, (2, 3, 4), dtype=np.float16)
    return node("InstanceNormalization", x, x[0, :, 0], x[0, :, 1])


@case("instancenorm-parts", _instancenorm_of_halves)
def _(draw: DrawFn) -> Instance:
    return _instancenorm(draw)


@case("instancenorm-layernorm", lambda draw: _instancenorm(draw, version=(11, 13, 16)))
def _(draw: DrawFn) -> Instance:
    return _instancenorm(draw, version=(17, 21))


def _groupnorm(draw: DrawFn, *, computed: bool = False) -> Instance:
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dims = (draw(st.integers(1, 3)), groups * each, *shape(draw, 1, 2))
    version = opset(draw, 18, 21)
    x = floats(draw, dims, edges=EDGES)
    gamma, beta = (_weights(draw, groups if version < 21 else groups * each) for _ in range(2))
    wide = [np.repeat(it, each) if version < 21 else it for it in (gamma, beta)]
    rows = x.reshape(dims[0], groups, -1)
    plain = of_row(rows, (2,), 1e-5, np.ones(()), np.zeros(())).reshape(dims)
    inner = (-1, *[1] * (len(dims) - 2))
    scale = plain * np.abs(wide[0].reshape(inner)) + np.abs(wide[1].reshape(inner))
    weights = [it if computed else Constant(it) for it in (gamma, beta)]
    return node("GroupNormalization", x, *weights, num_groups=groups, opset=version, scale=scale)


@case("groupnorm-parts", lambda draw: _groupnorm(draw, computed=True))
def _(draw: DrawFn) -> Instance:
    return _groupnorm(draw)


def _of_share(draw: DrawFn, dims: tuple[int, ...], edges: tuple[float, ...]) -> tuple[np.ndarray, int]:
    return floats(draw, dims, edges=edges), int(np.prod(dims))


def _rmsnorm_of_halves(draw: DrawFn) -> Instance:
    x = floats(draw, (2, 3), dtype=np.float16)
    return node("RMSNormalization", x, x[0], opset=23)


@case("rmsnorm-parts", _rmsnorm_of_halves)
def _(draw: DrawFn) -> Instance:
    dims = shape(draw)
    axis = draw(st.integers(0, len(dims) - 1))
    x, gamma = floats(draw, dims, edges=EDGES), _weights(draw, *dims[axis:])
    axes = tuple(range(axis, len(dims)))
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        output = np.abs(wide / np.sqrt((wide * wide).mean(axis=axes, keepdims=True) + 1e-5) * gamma)
    terms = np.prod(dims[axis:]) + 2
    return node("RMSNormalization", x, Constant(gamma), axis=axis, opset=opset(draw, 23, 24), scale=output * terms)


def _lpnorm_of_halves(draw: DrawFn) -> Instance:
    return node("LpNormalization", floats(draw, (2, 3), dtype=np.float16))


@case("lpnorm-parts", _lpnorm_of_halves)
def _(draw: DrawFn) -> Instance:
    x = floats(draw, shape(draw), edges=(1.0, -1.0, 1e4, -1e4, 1e-4))
    axis, p = draw(st.integers(-x.ndim, x.ndim - 1)), draw(st.integers(1, 2))
    output = np.abs(x) / np.linalg.norm(x.astype(np.float64), ord=p, axis=axis, keepdims=True)
    return node("LpNormalization", x, axis=axis, p=p, opset=opset(draw, 7, 17, 22), scale=output * (x.shape[axis] + 2))


def _batchnorm(draw: DrawFn, *, ranks: tuple[int, int], computed: bool = False) -> Instance:
    dims = shape(draw, *ranks)
    channels = dims[1]
    x = floats(draw, dims, edges=EDGES)
    gamma, beta, mean = (_weights(draw, channels) for _ in range(3))
    variance = floats(draw, (channels,), low=0.01, high=4.0, edges=(0.0, 1.0))
    epsilon = _epsilon(draw)
    inner = (-1, *[1] * (len(dims) - 2))
    wide = [it.astype(np.float64).reshape(inner) for it in (gamma, beta, mean, variance)]
    root = np.sqrt(wide[3] + epsilon.get("epsilon", 1e-5))
    scale = (np.abs(x.astype(np.float64)) + np.abs(wide[2])) / root * np.abs(wide[0]) + np.abs(wide[1])
    stored = [it if computed else Constant(it) for it in (gamma, beta, mean, variance)]
    return node("BatchNormalization", x, *stored, opset=opset(draw, 9, 13, 15, 17), scale=scale, **epsilon)


@case("batchnorm-mul-add", lambda draw: _batchnorm(draw, ranks=(2, 4), computed=True))
def _(draw: DrawFn) -> Instance:
    return _batchnorm(draw, ranks=(2, 4))


@case("batchnorm-parts", lambda draw: _batchnorm(draw, ranks=(2, 4)))
def _(draw: DrawFn) -> Instance:
    return _batchnorm(draw, ranks=(2, 5), computed=True)


@case("batchnorm-image", lambda draw: _batchnorm(draw, ranks=(4, 4)))
def _(draw: DrawFn) -> Instance:
    return _batchnorm(draw, ranks=(2, 3), computed=draw(st.booleans()))


__all__ = ["integers"]


def _lrn(draw: DrawFn, sizes: list[int], **attributes: object) -> Instance:
    x = floats(draw, shape(draw, 4, 4, 7), edges=(0.0, -0.0, 1e-30, 1000.0, -300.0))
    alpha, bias = draw(st.sampled_from([(1e-4, 1.0), (1e-3, 1.0), (2e-3, 2.0), (1e-4, 0.1)]))
    chosen = {"alpha": alpha, "bias": bias, "beta": draw(st.sampled_from([0.75, 0.5, 1.0])), **attributes}
    made = node("LRN", x, opset=opset(draw, 7, 13, 17), size=draw(st.sampled_from(sizes)), **chosen)
    (out,) = outputs_of(made.model, made.feeds)
    largest = float((x.astype(np.float64) ** 2).max())
    return replace(made, scale=np.abs(out) * x.shape[1] * (1 + alpha / bias * largest))


@case("lrn-pool", lambda draw: _lrn(draw, [3], alpha=0.1))
def _(draw: DrawFn) -> Instance:
    return _lrn(draw, [1, 3, 5])
