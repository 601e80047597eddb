"""The walk of a cut: `onnx.utils.Extractor` over a skeleton of the model.

The skeleton has the model's nodes without attributes and weights, and the captures of their bodies as plain inputs.
So the Extractor cannot lose what only a body uses (onnx 1.23 does), copies no payload, and serves any number of cuts.
It is made of plain values that have what the Extractor looks at: its own search goes over them ten times as fast as
over protobufs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import onnx
from onnx.utils import Extractor

from onnxbisect.cut.wiring import Wiring


@dataclass(frozen=True, slots=True)
class _Node:
    """As much of a NodeProto as a walk needs; `index` is its place in the model."""

    index: int
    input: tuple[str, ...]
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Graph:
    """As a GraphProto without anything but nodes."""

    node: Sequence[_Node]
    input: tuple[()] = ()
    output: tuple[()] = ()
    initializer: tuple[()] = ()
    value_info: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """As a ModelProto."""

    graph: _Graph


class SkeletonExtractor(Extractor):
    """Built once per model; answers with node indices, from any thread."""

    def __init__(self, wiring: Wiring) -> None:
        nodes = [
            _Node(index, tuple([name for name in taken if name not in wiring.weights]), made)
            for index, (taken, made) in enumerate(zip(wiring.taken, wiring.made, strict=True))
        ]
        super().__init__(cast("onnx.ModelProto", _Skeleton(_Graph(nodes))))
        # Any tensor may be at a boundary; what is declared of it is not the Extractor's business.
        self.value_infos = dict.fromkeys(wiring.names, onnx.ValueInfoProto())

    def nodes_between(self, entering: Iterable[str], roots: Iterable[str]) -> list[int]:
        """The nodes met on the way back from `roots` to `entering`, as indices into the model, ascending."""
        extracted = cast("_Skeleton", self.extract_model(list(entering), list(roots)))
        return [node.index for node in extracted.graph.node]

    # What follows would put payload into the piece. `onnxbisect.cut.cutter` does so; a skeleton has none.

    def _collect_reachable_tensors(
        self, nodes: list[onnx.NodeProto]
    ) -> tuple[list[onnx.TensorProto], list[onnx.ValueInfoProto]]:
        return [], []

    def _collect_referred_local_functions(self, nodes: list[onnx.NodeProto]) -> list[onnx.FunctionProto]:
        return []

    def _make_model(self, nodes: list[onnx.NodeProto], *_: object) -> onnx.ModelProto:
        return cast("onnx.ModelProto", _Skeleton(_Graph(cast("list[_Node]", nodes))))
