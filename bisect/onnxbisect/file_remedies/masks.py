"""Masks of attention scores that are as low as a float can be."""

from collections import defaultdict
from collections.abc import Iterator
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from onnxbisect.file_remedies.editing import copied
from onnxbisect.file_remedies.file import File
from onnxbisect.file_remedies.remedy import RemediedFile, file_remedy
from onnxbisect.model.external import is_external
from onnxbisect.model.scopes import domain_of, reads
from onnxbisect.preflight import Reader
from onnxbisect.preflight.subject import count
from onnxbisect.rewrites import Exactness, NotApplicable

#: Low enough that exp is 0 in float32 and float16, and high enough that sums and integer scales keep their digits.
_LOWEST = -1e4
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
#: Elements of the largest mask that is looked at: larger constants are weights.
_MOST = 4 << 20
#: Ops between a mask and the Softmax that it is for.
_BETWEEN = frozenset(
    {"Add", "Cast", "Concat", "Expand", "Gather", "Identity", "Max", "Mul", "Reshape", "Slice", "Squeeze", "Tile"}
    | {"Transpose", "Unsqueeze", "Where"}
)
_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
_STORED = frozenset({"Constant", "ConstantOfShape"})


@file_remedy(
    "bound-masks",
    answers="",
    exactness=Exactness.DOMAIN,
    domain="scores stay above -5000, no row of them is masked entirely, and what multiplies a mask is 0 or 1",
)
def bound_masks(file: File, reader: Reader) -> RemediedFile:
    """Constants below -10000 that mask scores before Softmax become -10000, which exp turns into 0 as well."""
    result = copied(file.proto)
    wanted = set(low_masks(result.graph))
    if not wanted:
        raise NotApplicable("no constant below -10000 masks scores before a Softmax")
    for name, tensor in _stored(result.graph):
        if name in wanted:
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.maximum(values, values.dtype.type(_LOWEST)), tensor.name))
    return RemediedFile(proto=result, sentence=f"{count(len(wanted), 'mask')} raised to {_LOWEST:.0f}")


def low_masks(graph: onnx.GraphProto) -> list[str]:
    """The constants of a graph with values below -10000 from which every path leads to a Softmax."""
    low = [name for name, tensor in _stored(graph) if _is_low(tensor)]
    if not low:
        return []
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in reads(node):
            readers[name].append(node)
    ends = {value.name for value in graph.output}
    return [name for name in low if _only_masks(name, readers, ends)]


def _stored(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.op_type in _STORED and not domain_of(node):
            yield from ((node.output[0], it.t) for it in node.attribute if it.name == "value" and it.HasField("t"))


def _is_low(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type not in _FLOATS or is_external(tensor) or prod(tensor.dims) > _MOST:
        return False
    values = numpy_helper.to_array(tensor)
    return values.size > 0 and bool(np.min(values) < _LOWEST)


def _only_masks(name: str, readers: dict[str, list[onnx.NodeProto]], ends: set[str]) -> bool:
    reached, seen, left = False, {name}, [name]
    while left:
        tensor = left.pop()
        if tensor in ends:
            return False
        for node in readers[tensor]:
            if domain_of(node) or node.op_type not in _BETWEEN | _SOFTMAX:
                return False
            reached |= node.op_type in _SOFTMAX
            if node.op_type in _BETWEEN and node.output[0] not in seen:
                seen.add(node.output[0])
                left.append(node.output[0])
    return reached
