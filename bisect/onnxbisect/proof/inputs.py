"""Inputs for comparing models: random numbers, and edge values at which formulas differ."""

from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
import onnx
from onnx import helper

from onnxbisect.errors import ModelError
from onnxbisect.model.feeds import Fill, Sample, feed
from onnxbisect.model.runnable import CARRIERS
from onnxbisect.model.wording import quoted

#: Zeros, ties, saturation, denormal and large numbers. No infinity and NaN: most models turn all outputs into NaN.
EDGES = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, -20.0, 1e-45, -1e-45, 1e-20, 1e4, -1e4)
_SPREAD = 2.0


def random_feeds(inputs: Sequence[onnx.ValueInfoProto], count: int) -> Iterator[Sample]:
    """Yield inputs with normally distributed floats, and integers 0 and 1, which are valid as indices.

    Raises ModelError for an input that is not a tensor.
    """
    for number in range(count):
        yield {value.name: _random(value, number) for value in inputs}


def edge_feeds(inputs: Sequence[onnx.ValueInfoProto], count: int, edges: Sequence[float] = EDGES) -> Iterator[Sample]:
    """Like `random_feeds`, with edge values in a quarter of the places of float inputs."""
    for number in range(count):
        yield {value.name: _with_edges(_random(value, number), edges, _seed(value, number)) for value in inputs}


def _random(value: onnx.ValueInfoProto, number: int) -> np.ndarray:
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"Input {quoted(value.name)} is no tensor, so nothing can be computed from made-up numbers.")
    array = feed(value, Fill.RANDOM, number)
    dtype = value.type.tensor_type.elem_type
    if np.dtype(helper.tensor_dtype_to_np_dtype(CARRIERS.get(dtype, dtype))).kind != "f":
        return array
    random = np.random.default_rng(_seed(value, number))
    return np.asarray(random.normal(size=array.shape) * _SPREAD).astype(array.dtype)


def _with_edges(array: np.ndarray, edges: Sequence[float], seed: int) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    random = np.random.default_rng(seed + 1)
    chosen = random.random(array.shape) < 1 / 4
    with np.errstate(over="ignore"):
        return np.where(chosen, random.choice(np.array(edges), size=array.shape).astype(array.dtype), array)


def _seed(value: onnx.ValueInfoProto, number: int) -> int:
    return crc32(value.name.encode(), number)
