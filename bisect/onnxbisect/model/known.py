"""Known values: choose which to keep, and compute those that follow from a static type alone."""

from collections.abc import Collection, Mapping

import numpy as np
import onnx

from onnxbisect.model.footprint import dims_of, size_of
from onnxbisect.model.scopes import domain_of

#: Largest value, in bytes, that is kept.
_VALUE_LIMIT = 64 << 20


def affordable(sizes: Mapping[str, int], met: Collection[str], budget: int) -> set[str]:
    """The values to keep within `budget` bytes: first those named in `met`, then others, smaller ones first."""
    chosen: set[str] = set()
    for name in sorted(sizes, key=lambda name: (name not in met, sizes[name], name)):
        if sizes[name] <= min(budget, _VALUE_LIMIT):
            budget -= sizes[name]
            chosen.add(name)
    return chosen


def results_of_static(
    graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """The `wanted` results of Shape and Size nodes whose input has a static shape, without running the nodes."""
    found: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type not in ("Shape", "Size") or domain_of(node) or node.output[0] not in wanted:
            continue
        kind = types.get(node.input[0])
        if kind is None or size_of(kind) is None:
            continue
        dims = np.array(dims_of(kind), dtype=np.int64)
        if node.op_type == "Size":
            found[node.output[0]] = np.array(dims.prod(), dtype=np.int64)
        else:
            span = {attribute.name: attribute.i for attribute in node.attribute}
            found[node.output[0]] = dims[span.get("start", 0) : span.get("end")]
    return found
