"""What a cut gives."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A set of units as a stand-alone model.

    `proto` still refers to external data beside the original file; `onnxbisect.cut.write` makes the references
    right. Node names are those of the model. `renamed` has the tensors that had to be renamed for the target: the
    name in the piece, then the name in the model. `external_nodes`: nodes of the model, not only initializers, refer
    to data beside its file.
    """

    units: UnitSet
    proto: onnx.ModelProto
    renamed: Mapping[str, str]
    probe_format: ProbeFormat
    external_nodes: bool

    def original(self, name: str) -> str:
        """The model's name of a node or tensor that a compiler's log calls `name`."""
        return self.renamed.get(name, name)
