"""A model as read from an ONNX file, with everything established about it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model.established import Established
from onnxbisect.universe import Universe


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The smallest part that can be cut out: one node, plus the Constant nodes that feed it.

    Both are indices into `Model.proto.graph.node`. A Constant node that feeds several units belongs to each of them.
    """

    node: int
    constants: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A normalised ONNX model: nodes in topological order with unique names, dimensions bound.

    The nodes of `proto` are in the file's own order where that is topological. `units` are numbered depth-first, so
    that a branch is one interval.

    `sha256` is the hash of the file's bytes, external data included. `proto` keeps external data as references into
    `path.parent` and is never changed after reading.
    `types` holds the concrete type of each tensor whose type is known. `known` are the values of computed tensors that
    do not depend on the model's inputs, without initializers and results of Constant nodes.
    `notes` are sentences about what could not be established and what is assumed instead.
    `unbound` are the graph inputs that still have a dynamic dimension; types that depend on them keep it.
    `data_dependent` are the tensors whose shape may depend on input values, as after NonZero: their type comes from one
    run, or is incomplete.
    `costly` are the names of nodes that took onnxruntime too much time or memory.
    `input_shapes` are the dimensions that the user gave to inputs, and `input_values` the inputs of the file that the
    user bound to a value: initializers in `proto`.
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
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_values: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Equal for models of equal files with equal values bound to the same inputs."""
        digest = hashlib.sha256(self.sha256.encode())
        for name, array in sorted(self.input_values.items()):
            digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode() + array.tobytes())
        return digest.hexdigest() if self.input_values else self.sha256

    @property
    def established(self) -> Established:
        """The established part of the model, to be passed to `load` the next time."""
        return Established(
            types=self.types,
            known=self.known,
            data_dependent=self.data_dependent,
            notes=self.notes,
            costly=self.costly,
        )

    @cached_property
    def unit_of_node(self) -> Mapping[str, int]:
        """Unit index by node name, without Constant nodes."""
        return {self.proto.graph.node[unit.node].name: index for index, unit in enumerate(self.units)}
