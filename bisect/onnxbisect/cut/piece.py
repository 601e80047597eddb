"""The result of a cut."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A set of units as a stand-alone model.

    `proto` still refers to external data beside the original file; `onnxbisect.cut.write` updates the references. Node
    names are those of the model. `renamed` maps the name of each tensor that was renamed for the target to its name in
    the model. `external_nodes` tells that nodes of the model, not only initializers, refer to external data.
    """

    units: UnitSet
    proto: onnx.ModelProto
    renamed: Mapping[str, str]
    probe_format: ProbeFormat
    external_nodes: bool

    def original(self, name: str) -> str:
        """The model's name of a node or tensor that the piece, and so a compiler's log, calls `name`."""
        return self.renamed.get(name, name)
