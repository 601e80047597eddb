"""Generate deterministic input data of the right dtype, with values that most models accept."""

from collections.abc import Mapping
from enum import StrEnum
from math import prod
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto

from onnxbisect.model.runnable import fed_dtype

#: One set of values for the model's inputs, by name.
Sample = Mapping[str, np.ndarray]


class Fill(StrEnum):
    """How generated inputs are filled; where a model refuses the numbers of one fill, the next is tried."""

    #: Floats uniform in [0, 1), integers 0 or 1, booleans alternating.
    RANDOM = "random"
    ZEROS = "zeros"
    ONES = "ones"


def feed(value: onnx.ValueInfoProto, fill: Fill, sample: int = 0) -> np.ndarray:
    """Data for a tensor input whose dimensions are bound; in a wider dtype where numpy lacks its own.

    With a random fill, different `sample` numbers give different data.
    """
    dtype = value.type.tensor_type.elem_type
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    if dtype == TensorProto.STRING:
        return np.full(shape, "", dtype=object)
    kind = fed_dtype(dtype)
    if fill is not Fill.RANDOM:
        return np.full(shape, fill is Fill.ONES).astype(kind)
    random = np.random.default_rng(crc32(value.name.encode(), sample))
    if kind == np.bool_:
        alternating: np.ndarray = np.arange(prod(shape)) % 2 == 0
        return alternating.reshape(shape)
    if kind.kind in "iu":
        return random.integers(0, 2, size=shape).astype(kind)
    if kind.kind == "c":
        return (random.random(shape) + 1j * random.random(shape)).astype(kind)
    return random.random(shape, dtype=np.float32).astype(kind)
