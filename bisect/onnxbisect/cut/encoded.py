"""Nodes encoded once as protobuf bytes, to be concatenated in every cut.

Protobuf parses concatenated messages as one message and concatenates their repeated fields. Parsing a graph joined in
this way is ten times as fast as adding its nodes one by one.
"""

from collections.abc import Collection, Sequence

import onnx

from onnxbisect.cut.wiring import Wiring
from onnxbisect.model.model import Model

#: Largest node, in bytes, that is kept encoded. Larger nodes hold weights, which would be in memory twice.
_MOST_BYTES = 64 << 10


class EncodedNodes:
    """The nodes of one model, each with the inferred types of its outputs."""

    def __init__(self, model: Model, wiring: Wiring) -> None:
        self._types = model.types
        self._nodes, self._made = wiring.nodes, wiring.made
        self._maker = {name: index for index, names in enumerate(wiring.made) for name in names}
        self._kept = tuple(
            self._encode(index, ()) if node.ByteSize() <= _MOST_BYTES else None
            for index, node in enumerate(wiring.nodes)
        )

    def join(self, nodes: Sequence[int], outputs: Collection[str]) -> bytes:
        """A graph of these nodes; the caller declares the types of `outputs` itself."""
        kept = self._kept
        ends = {self._maker[name] for name in outputs if name in self._maker}
        return b"".join(
            [
                self._encode(index, outputs) if index in ends else kept[index] or self._encode(index, ())
                for index in nodes
            ]
        )

    def _encode(self, index: int, outputs: Collection[str]) -> bytes:
        declared = [
            onnx.ValueInfoProto(name=name, type=self._types[name])
            for name in self._made[index]
            if name in self._types and name not in outputs
        ]
        return bytes(onnx.GraphProto(node=[self._nodes[index]], value_info=declared).SerializeToString())
