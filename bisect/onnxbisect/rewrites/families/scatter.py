"""ScatterND and ScatterElements at constant places."""

from math import prod

import numpy as np

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.forms import concat, reshape, slice_axis
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import Site
from onnxbisect.rewrites.sources import AI_HUB

_MOST_PLACES = 1 << 22


def _flat_rows(at: Site) -> tuple[np.ndarray, int]:
    """The places that a ScatterND writes, counted along the axes that its indices name, and how many those have."""
    shape, indices = at.shape(0), at.value(1)
    at.demand(at.attribute("reduction", "none") == "none", "values are combined with what is there")
    deep = indices.shape[-1]
    at.demand(0 < deep <= len(shape), "the indices do not fit the rank")
    sizes = np.array(shape[:deep])
    at.demand(bool(np.all((indices >= -sizes) & (indices < sizes))), "an index is out of range")
    flat = np.ravel_multi_index(tuple(np.moveaxis(indices % sizes, -1, 0)), shape[:deep]).ravel()
    _demand_once(at, flat)
    return flat, prod(shape[:deep])


def _demand_once(at: Site, places: np.ndarray) -> None:
    at.demand(0 < places.size <= _MOST_PLACES, "there are too many places, or none")
    at.demand(len(np.unique(places)) == places.size, "a place is written twice")


def _picked(at: Site, rows: str, updates: str, places: np.ndarray, count: int) -> str:
    """Rows of the data and of the updates, by a Gather that takes each from where it is."""
    at.demand(count <= _MOST_PLACES, "the tensor is too large for an order of its elements")
    order = np.arange(count)
    order[places] = count + np.arange(places.size)
    return at.op("Gather", concat(at, [rows, updates], 0), at.constant(order), axis=0)


@pytorch("torch.cat([x, v]).index_select(0, order) with a constant order instead of x[places] = v")
@rule(
    "ScatterND -> Reshape Concat Gather",
    Exactness.EXACT,
    rank=7,
    source="https://github.com/onnx/onnx-tensorrt/issues/618",
)
def scatternd_gather(at: Site) -> str:
    """Data and updates joined, then a Gather by a constant order."""
    places, count = _flat_rows(at)
    shape = at.shape(0)
    inner = prod(shape) // count if count else 0
    at.demand(prod(shape) > 0 and prod(at.shape(2)) == places.size * inner, "the updates do not fit")
    rows = reshape(at, at.input(0), [count, inner])
    updates = reshape(at, at.input(2), [places.size, inner])
    return reshape(at, _picked(at, rows, updates, places, count), shape)


@pytorch("torch.cat([x[:a], v, x[b:]]) instead of x[a:b] = v")
@rule("ScatterND -> Reshape Slice Concat", Exactness.EXACT, rank=7, source=AI_HUB + "maskrcnn/model_patches.py")
def scatternd_concat(at: Site) -> str:
    """Neighbouring rows: what is before, the updates, and what is behind, joined."""
    places, count = _flat_rows(at)
    shape = at.shape(0)
    start, end = int(places[0]), int(places[0]) + places.size
    at.demand(bool((places == np.arange(start, end)).all()), "the places are no neighbours in order")
    inner = prod(shape) // count if count else 0
    at.demand(prod(shape) > 0 and prod(at.shape(2)) == places.size * inner, "the updates do not fit")
    rows = reshape(at, at.input(0), [count, inner])
    parts = [reshape(at, at.input(2), [places.size, inner])]
    if start > 0:
        parts.insert(0, slice_axis(at, rows, 0, 0, start))
    if end < count:
        parts.append(slice_axis(at, rows, 0, end, count))
    return reshape(at, concat(at, parts, 0), shape)


@pytorch("torch.cat([x.flatten(), v.flatten()])[order].reshape(x.shape) instead of x.scatter(1, places, v)")
@rule("ScatterElements -> Reshape Concat Gather", Exactness.EXACT, rank=7, source=AI_HUB + "maskrcnn/model_patches.py")
def scatterelements_gather(at: Site) -> str:
    """Data and updates flattened and joined, then a Gather by a constant order."""
    shape, indices = at.shape(0), at.value(1)
    at.demand(at.attribute("reduction", "none") == "none", "values are combined with what is there")
    axis = at.axis(len(shape))
    at.demand(indices.shape == at.shape(2), "indices and updates differ in shape")
    at.demand(bool(np.all((indices >= -shape[axis]) & (indices < shape[axis]))), "an index is out of range")
    where: list[np.ndarray] = list(np.indices(indices.shape))
    where[axis] = indices % shape[axis]
    places = np.ravel_multi_index(tuple(where), shape).ravel()
    _demand_once(at, places)
    rows = reshape(at, at.input(0), [prod(shape)])
    updates = reshape(at, at.input(2), [places.size])
    return reshape(at, _picked(at, rows, updates, places, prod(shape)), shape)
