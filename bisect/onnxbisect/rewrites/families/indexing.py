"""Gather in simpler forms."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.rule import (
    FINITE,
    OLIVE,
    SIGN_OF_ZERO,
    Domain,
    pytorch,
    rule,
    tidl,
)
from onnxbisect.rewrites.site import FLOATS, Site, cast, concat, reshape, slice_axis, transpose

#: Slices that one node may become.
MOST_SLICES = 32
#: Elements of a selection matrix, and bytes of a table that is stored twice.
_LARGEST_MATRIX = 1 << 22
_LARGEST_TABLE = 1 << 28


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
    at.demand(len(starts) - 1 <= MOST_SLICES, f"the indices are more than {MOST_SLICES} runs")
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


@pytorch("F.one_hot(i, len(table)).float() @ table instead of table[i]")
@rule(
    "Gather -> Reshape Equal Cast MatMul",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=Domain(
        text="no negative index", holds=lambda values: values[1] is not None and bool((values[1] >= 0).all())
    ),
    rank=9,
    source=tidl("gather.py"),
)
def gather_one_hot(at: Site) -> str:
    """Rows of a constant table at computed places: a product with 1 at each place and 0 elsewhere."""
    table = _table(at)
    stored = at.input(0) if table.ndim == 2 else at.constant(table.reshape(len(table), -1))
    return _product(at, stored, np.arange(len(table)))


@pytorch("F.one_hot(i + n, 2 * n).float() @ torch.cat((table, table)) instead of table[i], n rows")
@rule(
    "Gather -> Reshape Equal Cast MatMul",
    Exactness.ROUNDING,
    SIGN_OF_ZERO,
    rank=9,
    source=tidl("gather.py"),
)
def gather_one_hot_twice(at: Site) -> str:
    """Rows of a constant table at computed places, also from behind: such a product with the table stored twice."""
    table = _table(at)
    at.demand(table.nbytes <= _LARGEST_TABLE, "the table is too large to be stored twice")
    twice = at.constant(np.concatenate((table, table)).reshape(2 * len(table), -1))
    return _product(at, twice, np.arange(-len(table), len(table)))


def _table(at: Site) -> np.ndarray:
    """The constant rows that a Gather takes from, all numbers finite."""
    at.demand_dtype(TensorProto.FLOAT)
    at.demand(not at.is_constant(1), "the indices are constant")
    table = at.value(0)
    at.demand(at.axis(table.ndim) == 0, "it is not rows that are gathered")
    at.demand(bool(np.isfinite(table).all()), "the table has NaN or infinity")
    return table


def _product(at: Site, table: str, numbers: np.ndarray) -> str:
    """The rows at the computed places; `numbers` are the places of the table's rows."""
    places = at.shape(1)
    at.demand(0 < len(numbers) * prod(places) <= _LARGEST_MATRIX, "the selection matrix would be too large")
    sought = at.constant(numbers.astype(at.value_dtype(1)))
    chosen = cast(at, at.op("Equal", reshape(at, at.input(1), [*places, 1]), sought), TensorProto.FLOAT)
    rows = at.op("MatMul", chosen, table)
    return rows if at.rank(0) == 2 else reshape(at, rows, at.output_shape())


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


#: Places that are written or read at most.
MOST_PLACES = 1 << 22


def from_front(at: Site, size: int | Sequence[int]) -> str:
    """Computed places along an axis, or along the axes that the last one lists, counted from the front, as int64."""
    place = at.input(1) if at.dtype(1) == TensorProto.INT64 else cast(at, at.input(1), TensorProto.INT64)
    end = at.op("Add", place, at.constant(np.array(size, np.int64)))
    return at.op("Where", at.op("Less", place, at.constant(np.array(0, np.int64))), end, place)


@pytorch("x.flatten()[places + offsets] instead of x.gather(1, places)")
@rule("GatherElements -> Cast Reshape Less Where Add Mul Gather", Exactness.EXACT, rank=9, source=tidl("gather.py"))
def gatherelements_computed(at: Site) -> str:
    """Computed places counted in the flattened data, then a Gather."""
    at.demand(not at.is_constant(1), "the indices are constant")
    shape, dims = at.shape(0), at.shape(1)
    at.demand(0 < prod(dims) <= MOST_PLACES and prod(shape) > 0, "there are too many places, or none")
    axis = at.axis(len(shape))
    own = prod(shape[axis + 1 :])
    strides = [prod(shape[number + 1 :]) for number in range(len(shape))]
    grids = np.indices(dims)
    offsets = sum(grids[number] * strides[number] for number in range(len(shape)) if number != axis)
    place = from_front(at, shape[axis])
    place = at.op("Mul", place, at.constant(np.array(own, np.int64))) if own > 1 else place
    flat = at.op("Add", place, at.constant(np.broadcast_to(np.asarray(offsets, np.int64), dims)))
    return at.op("Gather", reshape(at, at.input(0), [prod(shape)]), flat, axis=0)


@pytorch("x.flip(0) of a whole sequence; else x.flatten(0, 1)[places], instead of a loop over sequences")
@rule(
    "ReverseSequence -> Reshape Less Sub Where Mul Add Gather",
    Exactness.EXACT,
    rank=9,
    source="https://github.com/onnx/onnx-tensorrt/issues/520",
)
def reversesequence_gather(at: Site) -> str:
    """Of each step the place that it comes from, counted in the flattened steps, then a Gather; of any lengths."""
    shape = at.shape(0)
    time, batch = at.axis(len(shape), 0, "time_axis"), at.axis(len(shape), 1, "batch_axis")
    at.demand(len(shape) > 1 and {time, batch} == {0, 1}, "time and batch are not the first axes")
    (steps, rows), along = (shape[time], shape[batch]), [1 if axis == time else -1 for axis in (0, 1)]
    own = rows if time == 0 else 1
    at.demand(steps * rows <= MOST_PLACES, "there are too many places")
    step = np.arange(steps, dtype=np.int64).reshape(along[::-1])
    row = np.arange(rows, dtype=np.int64).reshape(along) * (1 if time == 0 else steps)
    if at.is_constant(1):
        lengths = at.value(1).astype(np.int64).reshape(along)
        at.demand(bool(((lengths >= 0) & (lengths <= steps)).all()), "a length is out of range")
        places = at.constant(np.where(step < lengths, lengths - 1 - step, step) * own + row)
    else:
        length, count = at.op("Reshape", at.input(1), at.integers(along)), at.constant(step)
        turned = at.op("Sub", length, at.constant(step + 1))
        place = at.op("Where", at.op("Less", count, length), turned, count)
        place = at.op("Mul", place, at.constant(np.array(own, np.int64))) if own > 1 else place
        places = at.op("Add", place, at.constant(row))
    return at.op("Gather", reshape(at, at.input(0), [steps * rows, *shape[2:]]), places, axis=0)


@pytorch("x[..., places]")
@rule(
    "ai.onnx.ml::ArrayFeatureExtractor -> Reshape Gather",
    Exactness.EXACT,
    rank=9,
    source="https://onnx.ai/onnx/operators/onnx_aionnxml_ArrayFeatureExtractor.html",
)
def arrayfeatureextractor_gather(at: Site) -> str:
    """A Gather along the last axis, as skl2onnx picks columns and the name of the likeliest class."""
    shape, count = at.shape(0), prod(at.shape(1))
    at.demand(len(shape) > 0, "the data have no axis")
    picked = at.op("Gather", at.input(0), reshape(at, at.input(1), [count]), axis=len(shape) - 1)
    return picked if len(shape) > 1 else reshape(at, picked, [1, count])
