"""Scatter in simpler forms."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto

from onnxbisect.exactness import Exactness
from onnxbisect.rewrites.families.indexing import MOST_PLACES, MOST_SLICES, from_front
from onnxbisect.rewrites.families.reductions import OF_TERMS
from onnxbisect.rewrites.rule import AI_HUB, SIGN_OF_ZERO, Bound, Domain, Values, operator, pytorch, rule
from onnxbisect.rewrites.site import FLOATS, Site, concat, reduce, reshape, slice_axis


def _have_no_nan(values: Values) -> bool:
    return all(it is not None and not np.isnan(it).any() for it in (values[0], values[2]))


def _flat_rows(at: Site) -> tuple[np.ndarray, int]:
    """The places that a ScatterND writes, counted along the axes that its indices name, and how many those have."""
    shape, indices = at.shape(0), at.value(1)
    deep = indices.shape[-1]
    at.demand(0 < deep <= len(shape), "the indices do not fit the rank")
    sizes = np.array(shape[:deep])
    at.demand(bool(np.all((indices >= -sizes) & (indices < sizes))), "an index is out of range")
    flat = np.ravel_multi_index(tuple(np.moveaxis(indices % sizes, -1, 0)), shape[:deep]).ravel()
    _demand_once(at, flat)
    return flat, prod(shape[:deep])


def _flat_elements(at: Site) -> np.ndarray:
    """The places that a ScatterElements writes, counted in the flattened data."""
    shape, indices = at.shape(0), at.value(1)
    axis = at.axis(len(shape))
    at.demand(indices.shape == at.shape(2), "indices and updates differ in shape")
    at.demand(bool(np.all((indices >= -shape[axis]) & (indices < shape[axis]))), "an index is out of range")
    where: list[np.ndarray] = list(np.indices(indices.shape))
    where[axis] = indices % shape[axis]
    places = np.ravel_multi_index(tuple(where), shape).ravel()
    _demand_once(at, places)
    return places


def _demand_replaced(at: Site) -> None:
    at.demand(at.attribute("reduction", "none") == "none", "values are combined with what is there")


def _demand_once(at: Site, places: np.ndarray) -> None:
    at.demand(0 < places.size <= MOST_PLACES, "there are too many places, or none")
    at.demand(len(np.unique(places)) == places.size, "a place is written twice")


def _picked(at: Site, rows: str, updates: str, places: np.ndarray, count: int) -> str:
    """Rows of the data and of the updates, by a Gather that takes each from where it is."""
    at.demand(count <= MOST_PLACES, "the tensor is too large for an order of its elements")
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
    _demand_replaced(at)
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
    _demand_replaced(at)
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
    _demand_replaced(at)
    shape, places = at.shape(0), _flat_elements(at)
    rows = reshape(at, at.input(0), [prod(shape)])
    updates = reshape(at, at.input(2), [places.size])
    return reshape(at, _picked(at, rows, updates, places, prod(shape)), shape)


#: Sums in another order.
_OF_SUMS = Bound(epsilons=1, of=OF_TERMS.of, absolute=OF_TERMS.absolute, note="the sign of zero may differ")
#: What a ScatterND or ScatterElements combines with what is there, as the op of two tensors.
_COMBINED = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def _combined(at: Site, there: str, kinds: Sequence[str]) -> str:
    """What is there and the updates, combined as the node's `reduction` says."""
    how = at.attribute("reduction", "none")
    at.demand(how in kinds, f"reduction is {how}")
    return at.op(_COMBINED[how], there, at.input(2))


def _scattered_nd(at: Site, kinds: Sequence[str]) -> str:
    """A ScatterND of what is there, combined with the updates; each place is written once."""
    _flat_rows(at)
    combined = _combined(at, at.op("GatherND", at.input(0), at.input(1)), kinds)
    return at.op("ScatterND", at.input(0), at.input(1), combined)


@pytorch("x[places] = x[places] + v instead of x.index_put_(places, v, accumulate=True)")
@rule("ScatterND -> GatherND Add Mul ScatterND", Exactness.EXACT, rank=8, source=operator("ScatterND"))
def scatternd_combined(at: Site) -> str:
    """Sums and products with what is at constant places, and then a ScatterND that replaces it."""
    return _scattered_nd(at, ("add", "mul"))


@pytorch("x[places] = x[places].maximum(v)")
@rule(
    "ScatterND -> GatherND Max Min ScatterND",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=Domain(text="no NaN", holds=_have_no_nan),
    rank=8,
    source=operator("ScatterND"),
)
def scatternd_extreme(at: Site) -> str:
    """The larger or smaller of each update and what is at its constant place, and then a ScatterND."""
    at.demand_dtype(*FLOATS)
    return _scattered_nd(at, ("max", "min"))


@pytorch("x.scatter(1, places, x.gather(1, places) + v) instead of x.scatter_add(1, places, v)")
@rule(
    "ScatterElements -> GatherElements Add Mul ScatterElements",
    Exactness.EXACT,
    rank=8,
    source=operator("ScatterElements"),
)
def scatterelements_combined(at: Site) -> str:
    """Sums and products with what is at constant places, and then a ScatterElements that replaces it."""
    axis = at.axis(at.rank(0))
    _flat_elements(at)
    there = at.op("GatherElements", at.input(0), at.input(1), axis=axis)
    return at.op("ScatterElements", at.input(0), at.input(1), _combined(at, there, ("add", "mul")), axis=axis)


@dataclass(frozen=True)
class _Scatter:
    """A scatter along one axis of `data`, of the shape `shape`: `place`, of the shape `dims`, says where along it each
    of the `updates` goes. It has 1 where it says so for all of an axis.
    """

    data: str
    shape: Sequence[int]
    axis: int
    place: str
    dims: Sequence[int]
    updates: str

    @classmethod
    def of_elements(cls, at: Site) -> "_Scatter":
        """That of a ScatterElements."""
        shape, dims = at.shape(0), at.shape(1)
        axis = at.axis(len(shape))
        same = [number for number in range(len(shape)) if number != axis]
        at.demand(
            all(shape[number] == dims[number] for number in same), "it writes to a part of another axis than its own"
        )
        return cls(at.input(0), shape, axis, from_front(at, shape[axis]), dims, at.input(2))

    @classmethod
    def of_rows(cls, at: Site) -> "_Scatter":
        """That of a ScatterND, where the axes that its indices name are one, and the others another."""
        shape, (*many, deep) = at.shape(0), at.shape(1)
        at.demand(0 < deep <= len(shape), "the indices do not fit the rank")
        places, count, inner = prod(many), prod(shape[:deep]), prod(shape[deep:])
        place = reshape(at, from_front(at, shape[:deep]), [places, deep])
        if deep > 1:
            strides = np.array([prod(shape[number + 1 : deep]) for number in range(deep)], np.int64)
            place = reduce(at, "ReduceSum", at.op("Mul", place, at.constant(strides)), [1], keepdims=True)
        rows, updates = reshape(at, at.input(0), [count, inner]), reshape(at, at.input(2), [places, inner])
        return cls(rows, [count, inner], 0, place, [places, 1], updates)

    def _along(self, at: Site) -> str:
        """The numbers of the places along the axis, in a shape that broadcasts with the data."""
        behind = [1] * (len(self.shape) - self.axis - 1)
        return at.constant(np.arange(self.shape[self.axis], dtype=np.int64).reshape([-1, *behind]))

    def one_after_the_other(self, at: Site) -> str:
        """The data with the updates of each place along the axis written where the axis is at the place."""
        axis, count, along = self.axis, self.dims[self.axis], self._along(at)
        at.demand(0 < count <= MOST_SLICES, f"more than {MOST_SLICES} places")
        result = self.data
        for number in range(count):
            one, value = (slice_axis(at, it, axis, number, number + 1) for it in (self.place, self.updates))
            result = at.op("Where", at.op("Equal", along, one), value, result)
        return result

    def combined(self, at: Site, *kinds: str) -> str:
        """The data combined with all updates at once: each is in an own layer, beside what changes nothing."""
        how = at.attribute("reduction", "none")
        at.demand(how in kinds, f"reduction is {how}")
        axis, count, along = self.axis, self.dims[self.axis], self._along(at)
        at.demand(0 < prod(self.shape) * count <= MOST_PLACES, "there are too many places, or none")
        width = [count if number == axis else dim for number, dim in enumerate(self.shape)]
        place, updates = (
            reshape(at, it, [*dims[: axis + 1], 1, *dims[axis + 1 :]])
            for it, dims in ((self.place, self.dims), (self.updates, width))
        )
        if how == "add":
            other = at.constant(np.zeros((), at.value_dtype(0)))
        else:
            other = reshape(at, self.data, [*self.shape[:axis], 1, *self.shape[axis:]])
        layers = at.op("Where", at.op("Equal", place, along), updates, other)
        return at.op(_COMBINED[how], self.data, reduce(at, _REDUCED[how], layers, [axis], keepdims=False))


_REDUCED = {"add": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


@pytorch("x = torch.where(arange == places[:, j:j+1], v[:, j:j+1], x) for each j, not x.scatter(1, places, v)")
@rule(
    "ScatterElements -> Cast Slice Equal Less Where Add",
    Exactness.ROUNDING,
    SIGN_OF_ZERO,
    rank=7,
    source=AI_HUB + "maskrcnn/model_patches.py",
)
def scatterelements_where(at: Site) -> str:
    """Computed places, up to 32 along the axis: Where the axis is at the place, one after the other."""
    at.demand(not at.is_constant(1), "the indices are constant")
    _demand_replaced(at)
    at.demand_dtype(*FLOATS, TensorProto.INT64, TensorProto.INT32)
    return _Scatter.of_elements(at).one_after_the_other(at)


@pytorch("x = torch.where(arange[:, None] == places[j], v[j], x) for each j, not x[places] = v")
@rule(
    "ScatterND -> Cast Less Add Reshape Mul ReduceSum Slice Equal Where",
    Exactness.ROUNDING,
    SIGN_OF_ZERO,
    rank=9,
    source=AI_HUB + "maskrcnn/model_patches.py",
)
def scatternd_where(at: Site) -> str:
    """Computed places, up to 32: Where the flattened rows are at the place, one after the other."""
    at.demand(not at.is_constant(1), "the indices are constant")
    _demand_replaced(at)
    at.demand_dtype(*FLOATS, TensorProto.INT64, TensorProto.INT32)
    return reshape(at, _Scatter.of_rows(at).one_after_the_other(at), at.shape(0))


@pytorch("x + torch.where(places[:, None] == arange[:, None], v[:, None], 0).sum(0), not x.scatter_add(0, places, v)")
@rule(
    "ScatterElements -> Cast Less Add Reshape Equal Where ReduceSum",
    Exactness.ROUNDING,
    _OF_SUMS,
    rank=8,
    source=operator("ScatterElements"),
)
def scatterelements_sums(at: Site) -> str:
    """Sums at computed places, as of a graph's edges: of each place all updates, those of others as 0."""
    at.demand_dtype(*FLOATS, TensorProto.INT64, TensorProto.INT32)
    return _Scatter.of_elements(at).combined(at, "add")


@pytorch("x.maximum(torch.where(places[:, None] == arange[:, None], v[:, None], x).amax(0))")
@rule(
    "ScatterElements -> Cast Less Add Reshape Equal Where ReduceMax ReduceMin Max Min",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=Domain(text="no NaN", holds=_have_no_nan),
    rank=8,
    source=operator("ScatterElements"),
)
def scatterelements_extreme(at: Site) -> str:
    """The largest or smallest at computed places: of each place all updates, and for those of others what is there."""
    at.demand_dtype(*FLOATS)
    return _Scatter.of_elements(at).combined(at, "max", "min")


@pytorch("x + torch.where(places[:, None] == arange[:, None], v[:, None], 0).sum(0), not x.index_add(0, places, v)")
@rule(
    "ScatterND -> Cast Less Add Reshape Mul ReduceSum Equal Where",
    Exactness.ROUNDING,
    _OF_SUMS,
    rank=9,
    source=operator("ScatterND"),
)
def scatternd_sums(at: Site) -> str:
    """Sums at computed places, the rows flattened: of each place all updates, those of others as 0."""
    at.demand_dtype(*FLOATS, TensorProto.INT64, TensorProto.INT32)
    return reshape(at, _Scatter.of_rows(at).combined(at, "add"), at.shape(0))


@pytorch("x.maximum(torch.where(places[:, None] == arange[:, None], v[:, None], x).amax(0))")
@rule(
    "ScatterND -> Cast Less Add Reshape Mul ReduceSum Equal Where ReduceMax ReduceMin Max Min",
    Exactness.DOMAIN,
    SIGN_OF_ZERO,
    domain=Domain(text="no NaN", holds=_have_no_nan),
    rank=9,
    source=operator("ScatterND"),
)
def scatternd_extreme_computed(at: Site) -> str:
    """The largest or smallest at computed places, the rows flattened."""
    at.demand_dtype(*FLOATS)
    return reshape(at, _Scatter.of_rows(at).combined(at, "max", "min"), at.shape(0))
