"""What intake knows of an ONNX file once it has read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model.established import Established
from onnxbisect.universe import Universe


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The smallest thing that can be cut out: one node, plus the Constant nodes that feed it.

    Both are indices into `Model.proto.graph.node`. A Constant node that feeds several units comes with each.
    """

    node: int
    constants: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A normalised ONNX model: nodes in topological order with unique names, dimensions bound.

    `sha256` is that of the uploaded bytes, external data included. `proto` keeps external data as references into
    `path.parent`; it is never changed after intake. `types` gives every tensor's concrete type, without an entry
    where nothing is known of it. `known` are the values of tensors that do not depend on the model's inputs
    (computed from constants and static shapes only; initializers and Constant nodes are not repeated here).
    `notes` are sentences about what intake could not establish and what it assumed instead.
    `unbound` are the graph inputs that still have a dynamic dimension; types that depend on them keep it.
    `data_dependent` are the tensors whose shape may depend on input values, as behind NonZero: their type is that
    of one run, or incomplete.
    `costly` are the nodes that onnxruntime took too long over, or too much memory for.
    """

    path: Path
    sha256: str
    proto: onnx.ModelProto
    units: tuple[Unit, ...]
    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    notes: tuple[str, ...]
    universe: Universe
    unbound: tuple[str, ...] = ()
    data_dependent: tuple[str, ...] = ()
    costly: tuple[str, ...] = ()

    @property
    def established(self) -> Established:
        """What `load` can be given the next time."""
        return Established(
            types=self.types,
            known=self.known,
            data_dependent=self.data_dependent,
            notes=self.notes,
            costly=self.costly,
        )

    @cached_property
    def unit_of_node(self) -> Mapping[str, int]:
        """Unit index by node name; Constant nodes are not in it."""
        return {self.proto.graph.node[unit.node].name: index for index, unit in enumerate(self.units)}
