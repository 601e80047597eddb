"""ScatterND and ScatterElements, inside and just outside of the rules' conditions."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from support.rewrites.instances import FINITE, Constant, Instance, anything, case, floats, integers, node, opset, shape

DrawFn = st.DrawFn


def _scatternd(draw: DrawFn, *, twice: bool = False, neighbours: bool = False) -> Instance:
    x = anything(draw, shape(draw, 1, 3, 4))
    deep = draw(st.integers(1, x.ndim))
    rows = int(np.prod(x.shape[:deep]))
    count = draw(st.integers(1, rows))
    start = draw(st.integers(0, rows - count))
    flat = np.arange(start, start + count) if neighbours else np.array(draw(st.permutations(range(rows))))[:count]
    flat = np.concatenate([flat, flat[:1]]) if twice else flat
    places = np.stack(np.unravel_index(flat, x.shape[:deep]), -1)
    places = places - np.array(x.shape[:deep]) * draw(st.integers(0, 1))
    updates = anything_like(draw, x, (len(flat), *x.shape[deep:]))
    return node("ScatterND", x, Constant(places), updates, opset=opset(draw, 11, 13, 16, 18))


def anything_like(draw: DrawFn, x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    return random.integers(0, 2, size=dims).astype(x.dtype)


def _scatternd_twice(draw: DrawFn) -> Instance:
    return _scatternd(draw, twice=True)


@case("scatternd-gather", _scatternd_twice)
def _(draw: DrawFn) -> Instance:
    return _scatternd(draw)


def _scatternd_apart(draw: DrawFn) -> Instance:
    x = anything(draw, (4, 2))
    return node(
        "ScatterND", x, Constant(np.array([[2], [draw(st.sampled_from([0, 1]))]])), anything_like(draw, x, (2, 2))
    )


@case("scatternd-concat", _scatternd_apart)
def _(draw: DrawFn) -> Instance:
    return _scatternd(draw, neighbours=True)


def _scatterelements(draw: DrawFn, *, twice: bool) -> Instance:
    x = anything(draw, shape(draw, 1, 3, 5))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    dims = [draw(st.integers(1, dim)) for dim in x.shape]
    order = np.argsort(np.random.default_rng(draw(st.integers(0, 99))).random(x.shape), axis=axis)
    indices = order[tuple(slice(0, dim) for dim in dims)]
    if twice:
        indices = np.concatenate([indices, indices], axis)
        if indices.shape[axis] > x.shape[axis]:
            x = np.concatenate([x, x], axis)
    indices = indices - x.shape[axis] * draw(st.integers(0, 1))
    updates = anything_like(draw, x, indices.shape)
    return node("ScatterElements", x, Constant(indices), updates, axis=axis, opset=opset(draw, 11, 13, 16, 18))


@case("scatterelements-gather", lambda draw: _scatterelements(draw, twice=True))
def _(draw: DrawFn) -> Instance:
    return _scatterelements(draw, twice=False)


def _scatterelements_of_constant(draw: DrawFn) -> Instance:
    x = floats(draw, (3, 2))
    return node("ScatterElements", x, Constant(np.zeros((3, 1), np.int64)), x[:, :1], axis=1)


@case("scatterelements-where", _scatterelements_of_constant)
def _(draw: DrawFn) -> Instance:
    whole = draw(st.sampled_from([None, np.int32, np.int64]))

    def numbers(dims: Sequence[int]) -> np.ndarray:
        return floats(draw, dims) if whole is None else integers(draw, dims, -9, 9, whole)

    x = numbers(shape(draw))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    dims = list(x.shape)
    dims[axis] = draw(st.integers(1, 6))  # a place may be written twice: the last one stays
    size = x.shape[axis]
    index = integers(draw, dims, -size, size - 1, draw(st.sampled_from([np.int32, np.int64])))
    return node("ScatterElements", x, index, numbers(dims), axis=axis, opset=opset(draw, 11, 13, 17))


def _combining(draw: DrawFn, op: str, *reductions: str, data: np.ndarray, axis: int | None = None) -> Instance:
    """Each place is written once; values with edges, as they are combined."""
    along = {} if axis is None else {"axis": axis}
    if axis is None:
        places = np.array(draw(st.permutations(range(len(data)))))[: draw(st.integers(1, len(data)))]
        indices, dims = places[:, None], (len(places), *data.shape[1:])
    else:
        indices = np.argsort(np.random.default_rng(draw(st.integers(0, 99))).random(data.shape), axis=axis)
        dims = data.shape
    integer = data.dtype == np.int64
    updates = integers(draw, dims, -9, 9, np.int64) if integer else floats(draw, dims, edges=FINITE, dtype=data.dtype)
    version = opset(draw, 18, 21) if {"max", "min"} & set(reductions) else opset(draw, 16, 18)
    return node(
        op, data, Constant(indices), updates, reduction=draw(st.sampled_from(reductions)), opset=version, **along
    )


def _data(draw: DrawFn, **drawn: object) -> np.ndarray:
    dims = shape(draw, 1, 3, 4)
    return draw(st.sampled_from([floats(draw, dims, **drawn), integers(draw, dims, -9, 9, np.int64)]))


def _replacing(draw: DrawFn) -> Instance:
    return _scatternd(draw, neighbours=True)


@case("scatternd-combined", _replacing)
def _(draw: DrawFn) -> Instance:
    return _combining(draw, "ScatterND", "add", "mul", data=_data(draw))


@case("scatternd-extreme", lambda draw: _combining(draw, "ScatterND", "add", data=_data(draw)))
def _(draw: DrawFn) -> Instance:
    return _combining(draw, "ScatterND", "max", "min", data=floats(draw, shape(draw, 1, 3, 4), edges=FINITE))


@case("scatterelements-combined", lambda draw: _scatterelements(draw, twice=False))
def _(draw: DrawFn) -> Instance:
    data = _data(draw)
    return _combining(
        draw, "ScatterElements", "add", "mul", data=data, axis=draw(st.integers(-data.ndim, data.ndim - 1))
    )


def _computed(draw: DrawFn, op: str, *reductions: str, whole: bool = True) -> Instance:
    """A scatter at places that are no constants, also from behind; where values are combined a place may be written
    several times.
    """
    kinds = [None, np.int32, np.int64] if whole else [None]
    kind = draw(st.sampled_from(kinds))

    def numbers(dims: Sequence[int]) -> np.ndarray:
        return floats(draw, dims, edges=FINITE) if kind is None else integers(draw, dims, -9, 9, kind)

    x = numbers(shape(draw, 1, 3, 4))
    how = draw(st.sampled_from(reductions))
    version = {"none": (11, 13, 17), "add": (16, 18, 21)}.get(how, (18, 21))
    combined = {} if how == "none" else {"reduction": how}
    if op == "ScatterElements":
        axis = draw(st.integers(-x.ndim, x.ndim - 1))
        dims = list(x.shape)
        dims[axis] = draw(st.integers(1, 6))
        size = x.shape[axis]
        places = integers(draw, dims, -size, size - 1, draw(st.sampled_from([np.int32, np.int64])))
        updates = numbers(dims)
        layers = np.zeros((dims[axis], *x.shape))
        front = np.moveaxis(places % size, axis, 0)
        for number in range(dims[axis]):
            there = np.expand_dims(front[number], axis)
            value = np.expand_dims(np.moveaxis(updates, axis, 0)[number], axis)
            np.put_along_axis(layers[number], there, np.abs(value.astype(np.float64)), axis)
        scale = (np.abs(x) + layers.sum(0)) * (dims[axis] + 1)
        return node(op, x, places, updates, axis=axis, opset=opset(draw, *version), scale=scale, **combined)
    deep = draw(st.integers(1, x.ndim))
    many = shape(draw, 1, 2, 3)
    places = np.stack([integers(draw, many, -size, size - 1, np.int64) for size in x.shape[:deep]], -1)
    updates = numbers((*many, *x.shape[deep:]))
    added = np.abs(x).astype(np.float64)
    np.add.at(added, tuple(np.moveaxis(places, -1, 0)), np.abs(updates.astype(np.float64)))
    return node(op, x, places, updates, opset=opset(draw, *version), scale=added * (places.size + 1), **combined)


@case("scatterelements-sums", lambda draw: _computed(draw, "ScatterElements", "none", "mul"))
def _(draw: DrawFn) -> Instance:
    return _computed(draw, "ScatterElements", "add")


@case("scatterelements-extreme", lambda draw: _computed(draw, "ScatterElements", "add"))
def _(draw: DrawFn) -> Instance:
    return _computed(draw, "ScatterElements", "max", "min", whole=False)


@case("scatternd-sums", lambda draw: _computed(draw, "ScatterND", "none"))
def _(draw: DrawFn) -> Instance:
    return _computed(draw, "ScatterND", "add")


@case("scatternd-extreme-computed", lambda draw: _computed(draw, "ScatterND", "add"))
def _(draw: DrawFn) -> Instance:
    return _computed(draw, "ScatterND", "max", "min", whole=False)


@case("scatternd-where", lambda draw: _computed(draw, "ScatterND", "add"))
def _(draw: DrawFn) -> Instance:
    return _computed(draw, "ScatterND", "none")
