"""Gather, GatherND and GatherElements by constant places."""

from itertools import pairwise
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.exactness import FINITE, SIGN_OF_ZERO, Domain, Values
from onnxbisect.rewrites.forms import cast, concat, reshape, slice_axis, transpose
from onnxbisect.rewrites.rule import pytorch, rule
from onnxbisect.rewrites.site import FLOATS, Site
from onnxbisect.rewrites.sources import OLIVE, tidl

#: Slices that one node may become.
_MOST_SLICES = 32
#: Elements of a selection matrix.
_LARGEST_MATRIX = 1 << 22


def _places(at: Site, size: int) -> np.ndarray:
    """Constant indices of Gather, counted from the front."""
    indices = at.value(1)
    at.demand(bool(np.all((indices >= -size) & (indices < size))), "an index is out of range")
    return indices.astype(np.int64) % size if size else indices.astype(np.int64)


@pytorch("x[:, i:i+1].reshape(...) instead of x[:, i]")
@rule("Gather -> Slice Reshape", Exactness.EXACT, rank=9, source=tidl("gather.py"))
def gather_slice(at: Site) -> str:
    """One constant index: a Slice of one place, reshaped."""
    shape = at.shape(0)
    axis = at.axis(len(shape))
    place = _places(at, shape[axis])
    at.demand(place.size == 1, "more than one index")
    start = int(place.ravel()[0])
    return reshape(at, slice_axis(at, at.input(0), axis, start, start + 1), at.output_shape())


@pytorch("x.index_select(1, torch.tensor([i])).reshape(...) instead of x[:, i]")
@rule("Gather -> Gather Reshape", Exactness.EXACT, rank=9, source=OLIVE)
def gather_vector(at: Site) -> str:
    """A scalar index as a list of one, the result reshaped."""
    at.demand(at.rank(1) == 0, "the index is no scalar")
    index = at.value(1)
    kept = at.op("Gather", at.input(0), at.constant(index.reshape(1)), axis=at.attribute("axis", 0))
    return reshape(at, kept, at.output_shape())


@pytorch("torch.cat([x[:, a:b], x[:, c:d]], 1) instead of x[:, [a, …, c, …]]")
@rule("Gather -> Slice Concat", Exactness.EXACT, rank=9, source=tidl("gather.py"))
def gather_slices(at: Site) -> str:
    """A constant list of indices: one Slice for each run of neighbours, joined."""
    shape = at.shape(0)
    axis = at.axis(len(shape))
    at.demand(at.rank(1) == 1, "the indices are no list")
    places = _places(at, shape[axis]).tolist()
    at.demand(bool(places), "there is no index")
    starts = [0, *(n for n, (a, b) in enumerate(pairwise(places), 1) if b != a + 1), len(places)]
    at.demand(len(starts) - 1 <= _MOST_SLICES, f"the indices are more than {_MOST_SLICES} runs")
    runs = [(places[a], places[b - 1] + 1) for a, b in pairwise(starts)]
    return concat(at, [slice_axis(at, at.input(0), axis, start, end) for start, end in runs], axis)


@pytorch("selection @ x, selection a constant matrix of 0 and 1, instead of x[indices]")
@rule(
    "Gather -> MatMul Transpose Reshape",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=FINITE,
    rank=9,
    source=tidl("gather.py"),
)
def gather_matmul(at: Site) -> str:
    """Constant indices as a product with a matrix of zeros and ones."""
    at.demand_dtype(*FLOATS)
    shape = at.shape(0)
    axis = at.axis(len(shape))
    places = _places(at, shape[axis]).ravel()
    at.demand(0 < places.size * shape[axis] <= _LARGEST_MATRIX, "the selection matrix would be too large")
    matrix = np.zeros((shape[axis], places.size), dtype=at.value_dtype(0))
    matrix[places, np.arange(places.size)] = 1
    last = [n for n in range(len(shape)) if n != axis]
    product = at.op("MatMul", transpose(at, at.input(0), [*last, axis]), at.constant(matrix))
    back = [*range(axis), len(shape) - 1, *range(axis, len(shape) - 1)]
    return reshape(at, transpose(at, product, back), at.output_shape())


def _are_places(values: Values) -> bool:
    return values[1] is not None and bool((values[1] >= 0).all())


@pytorch("F.one_hot(i, len(table)).float() @ table instead of table[i]")
@rule(
    "Gather -> Reshape Equal Cast MatMul",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=Domain(text="no negative index", holds=_are_places),
    rank=9,
    source=tidl("gather.py"),
)
def gather_one_hot(at: Site) -> str:
    """Rows of a constant table at computed places: a product with 1 at each place and 0 elsewhere."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(not at.is_constant(1), "the indices are constant")
    table, places = at.value(0), at.shape(1)
    at.demand(at.axis(table.ndim) == 0, "it is not rows that are gathered")
    at.demand(0 < table.shape[0] * prod(places) <= _LARGEST_MATRIX, "the selection matrix would be too large")
    at.demand(bool(np.isfinite(table).all()), "the table has NaN or infinity")
    numbers = at.constant(np.arange(table.shape[0], dtype=at.value_dtype(1)))
    chosen = cast(at, at.op("Equal", reshape(at, at.input(1), [*places, 1]), numbers), TensorProto.FLOAT)
    if table.ndim == 2:
        return at.op("MatMul", chosen, at.input(0))
    rows = at.op("MatMul", chosen, at.constant(table.reshape(table.shape[0], -1)))
    return reshape(at, rows, at.output_shape())


@pytorch("x.flatten(0, 1)[i * w + j] with constant places instead of x[i, j]")
@rule("GatherND -> Reshape Gather", Exactness.EXACT, rank=9, source=tidl("gather.py"))
def gathernd_gather(at: Site) -> str:
    """Constant places of several axes: these axes flattened, a Gather of places there."""
    shape, indices = at.shape(0), at.value(1)
    at.demand(at.attribute("batch_dims", 0) == 0, "batch_dims is not 0")
    deep = indices.shape[-1]
    at.demand(0 < deep <= len(shape), "the indices do not fit the rank")
    sizes = np.array(shape[:deep])
    at.demand(bool(np.all((indices >= -sizes) & (indices < sizes))), "an index is out of range")
    flat = np.ravel_multi_index(tuple(np.moveaxis(indices % sizes, -1, 0)), shape[:deep])
    rows = reshape(at, at.input(0), [prod(shape[:deep]), *shape[deep:]])
    picked = at.op("Gather", rows, at.constant(np.asarray(flat, np.int64).reshape(-1)), axis=0)
    return reshape(at, picked, at.output_shape())


@pytorch("x.flatten()[places] with constant places instead of x.gather(1, indices)")
@rule("GatherElements -> Reshape Gather", Exactness.EXACT, rank=9, source=tidl("gather.py"))
def gatherelements_gather(at: Site) -> str:
    """Constant indices: the data flattened, a Gather of places there."""
    shape, indices = at.shape(0), at.value(1)
    axis = at.axis(len(shape))
    size = shape[axis]
    at.demand(bool(np.all((indices >= -size) & (indices < size))), "an index is out of range")
    at.demand(0 < indices.size <= _LARGEST_MATRIX, "there are too many indices, or none")
    places: list[np.ndarray] = list(np.indices(indices.shape))
    places[axis] = indices.astype(np.int64) % size
    flat = np.ravel_multi_index(tuple(places), shape)
    picked = at.op("Gather", reshape(at, at.input(0), [prod(shape)]), at.constant(flat.ravel()), axis=0)
    return reshape(at, picked, indices.shape)
