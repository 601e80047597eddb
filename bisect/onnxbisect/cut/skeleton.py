"""The walk of a cut: `onnx.utils.Extractor` over a skeleton of the model.

The skeleton has the same nodes without attributes and weights, and the captures of their bodies as plain inputs.
So the Extractor cannot lose what only a body uses (onnx 1.23 does), copies no payload, and serves any number of
cuts.
"""

import copy
from collections.abc import Sequence

import onnx
from onnx.utils import Extractor

from onnxbisect.cut.wiring import Wiring


class SkeletonExtractor(Extractor):
    """Built once per model; answers with node indices, from any thread."""

    def __init__(self, wiring: Wiring) -> None:
        skeleton = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        for index, (taken, made) in enumerate(zip(wiring.taken, wiring.made, strict=True)):
            inputs = [name for name in taken if name not in wiring.weights]
            skeleton.graph.node.add(name=str(index), input=inputs, output=made)
        super().__init__(skeleton)

    def nodes_between(self, entering: Sequence[str], roots: Sequence[str]) -> list[int]:
        """The nodes met on the way back from `roots` to `entering`, as indices into the model, ascending."""
        # A shallow copy: the skeleton is shared, but each cut has a boundary of its own, without types.
        walker = copy.copy(self)
        walker.value_infos = {name: onnx.ValueInfoProto(name=name) for name in (*entering, *roots)}
        extracted = walker.extract_model(list(entering), list(roots))
        return [int(node.name) for node in extracted.graph.node]

    # A skeleton has neither tensors nor functions. Looking for them would take half of the time of a cut; were
    # these methods renamed in onnx, nothing would be lost but that time.

    def _collect_reachable_tensors(
        self, nodes: list[onnx.NodeProto]
    ) -> tuple[list[onnx.TensorProto], list[onnx.ValueInfoProto]]:
        return [], []

    def _collect_referred_local_functions(self, nodes: list[onnx.NodeProto]) -> list[onnx.FunctionProto]:
        return []
