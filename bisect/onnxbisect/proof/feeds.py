"""Inputs on which two models are compared: made-up ones, how far rounding moves what is computed from them, and their
form in a model whose boundary was changed.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxbisect.errors import ModelError
from onnxbisect.language import quoted
from onnxbisect.model.binding import is_unbound
from onnxbisect.model.facts import with_rank
from onnxbisect.model.runnable import Fill, Sample, fed_dtype, feed
from onnxbisect.model.scopes import fed_inputs

#: Zeros, ties, saturation, denormal and large numbers. No infinity and NaN: most models turn all outputs into NaN.
EDGES = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, -20.0, 1e-45, -1e-45, 1e-20, 1e4, -1e4)
_SPREAD = 2.0
#: A type holds the sum of so many squares of an edge: in float16, 1e4 makes most models infinite.
_SQUARES = 128


def random_feeds(inputs: Sequence[onnx.ValueInfoProto], count: int) -> Iterator[Sample]:
    """Yield inputs with normally distributed floats, and integers 0 and 1, which are valid as indices.

    Raises ModelError for an input that is not a tensor.
    """
    for number in range(count):
        yield {value.name: _held(value, _random(value, number)) for value in inputs}


def edge_feeds(inputs: Sequence[onnx.ValueInfoProto], count: int, edges: Sequence[float] = EDGES) -> Iterator[Sample]:
    """Like `random_feeds`, with edge values in a quarter of the places of float inputs."""
    for number in range(count):
        sample = {}
        for value in inputs:
            array = _random(value, number)
            if array.dtype.kind == "f":
                random = np.random.default_rng(_seed(value, number) + 1)
                chosen = random.random(array.shape) < 1 / 4
                largest = float(np.finfo(array.dtype).max)
                kept = np.array([edge for edge in edges if _SQUARES * edge * edge < largest])
                array = np.where(chosen, random.choice(kept, size=array.shape).astype(array.dtype), array)
            sample[value.name] = _held(value, array)
        yield sample


def _random(value: onnx.ValueInfoProto, number: int) -> np.ndarray:
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"Input {quoted(value.name)} is no tensor, so nothing can be computed from made-up numbers.")
    array = feed(value, Fill.RANDOM, number)
    if array.dtype.kind != "f":
        return array
    random = np.random.default_rng(_seed(value, number))
    return np.asarray(random.normal(size=array.shape) * _SPREAD).astype(array.dtype)


def _held(value: onnx.ValueInfoProto, array: np.ndarray) -> np.ndarray:
    """The numbers that the input's type holds: those of bfloat16 in an array of float32."""
    if value.type.tensor_type.elem_type != TensorProto.BFLOAT16:
        return array
    return array.astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)).astype(array.dtype)


def _seed(value: onnx.ValueInfoProto, number: int) -> int:
    return crc32(value.name.encode(), number)


#: Numbers at which functions jump, such as Round and Sign, are halves of integers up to this one.
_LARGEST_TIE = 32
#: How often inputs are moved, and how much more than the outputs then move an order of operations may change.
_MOVES, _MORE = 4, 16
_STEP_OF_BFLOAT16 = 2.0**-7


def leeways(
    run: Callable[[Sample], Sequence[np.ndarray]],
    sample: Sample,
    before: Sequence[np.ndarray],
    coarse: Collection[str] = (),
) -> list[np.ndarray]:
    """How far each element of each output may be off because floats are rounded: a multiple of how far it moves if the
    inputs move by one unit in the last place. `run` computes the outputs, which are `before` for the sample itself;
    `coarse` inputs are float32 arrays that hold numbers of bfloat16.

    Where many numbers are large and nearly cancel, or a Softmax is nearly tied, no two orders of the same operations
    agree (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.5). Zeros, halves and small
    integers stay, so that a function that jumps there is still compared there.
    """
    largest = [np.zeros(value.shape) for value in before]
    for number in range(_MOVES):
        random = np.random.default_rng(number)
        moved = {name: _moved(array, random, coarse=name in coarse) for name, array in sample.items()}
        for place, (old, new) in enumerate(zip(before, run(moved), strict=True)):
            with np.errstate(all="ignore"):
                move = np.abs(old.astype(np.float64) - new.astype(np.float64))
            largest[place] = np.maximum(largest[place], np.where(np.isfinite(move), move, 0.0))
    return [_MORE * move for move in largest]


def _moved(array: np.ndarray, random: np.random.Generator, *, coarse: bool) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    stays = (np.abs(array) <= _LARGEST_TIE) & (2 * array == np.rint(2 * array))
    signs = random.choice(np.array([-1, 1], array.dtype), size=array.shape)
    moved = array * (1 + signs * _STEP_OF_BFLOAT16) if coarse else np.nextafter(array, signs * inf)
    return np.where(stays, array, moved).astype(array.dtype)


def in_form_of(repaired: onnx.ModelProto, original: onnx.ModelProto, sample: Sample) -> Sample:
    """The sample for a model whose inputs may have another name, rank or dtype; renamed ones keep their order."""
    given, taken = ({value.name: value for value in fed_inputs(model.graph)} for model in (original, repaired))
    pairs = [(value, taken[name]) for name, value in given.items() if name in taken]
    gone, new = ([it[name] for name in it if name not in other] for it, other in ((given, taken), (taken, given)))
    pairs += zip(gone, new, strict=True) if len(gone) == len(new) else ()
    changed = dict(sample)
    for before, after in pairs:
        if before == after or before.name not in sample:
            continue
        array = changed.pop(before.name)
        old, wanted = before.type.tensor_type, after.type.tensor_type
        if old.elem_type != wanted.elem_type:
            array = array.astype(fed_dtype(wanted.elem_type))
        changed[after.name] = array.reshape(with_rank(array.shape, len(wanted.shape.dim)))
    return changed


def in_form(array: np.ndarray, declared: onnx.ValueInfoProto, before: onnx.ValueInfoProto) -> np.ndarray:
    """An output of the repaired model without the form that a change has given it: its rank and its dtype."""
    new, old = declared.type.tensor_type, before.type.tensor_type
    more = len(new.shape.dim) - len(old.shape.dim)
    if new.HasField("shape") and old.HasField("shape") and more > 0 and array.shape[:more] == (1,) * more:
        array = array.reshape(array.shape[more:])
    elif new.HasField("shape") and more < 0 and not is_unbound(before.type):
        shape = tuple(dim.dim_value for dim in old.shape.dim)
        array = array.reshape(shape) if array.shape == with_rank(shape, len(new.shape.dim)) else array
    if new.elem_type == old.elem_type:
        return array
    return array.astype(fed_dtype(old.elem_type))
