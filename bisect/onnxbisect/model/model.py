"""A model as read from an ONNX file, with everything established about it; its bytes spare the next reader the runs.

onnx and onnxruntime execute whatever a model says, such as an endless Loop or a tensor that doubles in every step.
The engine starts no process, so a caller that reads untrusted models passes a `Bounded` that does the work in one.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from onnx import numpy_helper

from onnxbisect.universe import Universe

_NOTES, _DATA_DEPENDENT, _COSTLY = "notes", "data_dependent", "costly"


@dataclass(frozen=True, kw_only=True, eq=False)
class Established:
    """The fields of `Model` that are costly to compute, under the same names."""

    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    data_dependent: tuple[str, ...]
    notes: tuple[str, ...]
    costly: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Encode as an ONNX model without nodes that holds the known tensors; equal content gives equal bytes."""
        model = onnx.ModelProto()
        for name, kind in self.types.items():
            model.graph.value_info.add(name=name).type.CopyFrom(kind)
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.known.items())
        for key, texts in ((_NOTES, self.notes), (_DATA_DEPENDENT, self.data_dependent), (_COSTLY, self.costly)):
            model.metadata_props.add(key=key, value=json.dumps(texts))
        return model.SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Established":
        """Decode what `to_bytes` returned."""
        model = onnx.ModelProto.FromString(raw)
        texts = {entry.key: tuple(json.loads(entry.value)) for entry in model.metadata_props}
        return cls(
            types={value.name: value.type for value in model.graph.value_info},
            known={tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer},
            data_dependent=texts[_DATA_DEPENDENT],
            notes=texts[_NOTES],
            costly=texts.get(_COSTLY, ()),  # files of earlier versions have none
        )


#: A model of a few kB needs 0.1 s and 200 MB. The limits grow with the file: hostile models are small, and a network
#: of 100 MB may need half a minute. Nodes take time, too, however small they are.
_SECONDS, _SECONDS_OF_MB, _SECONDS_OF_NODE = 20.0, 1.0, 0.0005
_MEMORY, _MEMORY_OF_BYTE = 1792 << 20, 16


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Limits: seconds on an idle machine, and bytes of memory."""

    seconds: float
    memory: int

    @classmethod
    def of(cls, size: int, nodes: int = 0) -> "Allowance":
        """The allowance for a model of `size` bytes, external data included, and so many nodes in its graph."""
        return cls(
            seconds=_SECONDS + _SECONDS_OF_MB * size / (1 << 20) + _SECONDS_OF_NODE * nodes,
            memory=_MEMORY + _MEMORY_OF_BYTE * size,
        )


class ExceededError(Exception):
    """The work exceeded its allowance; the text continues a sentence, as in "took more than 20 s"."""


class Bounded(Protocol):
    """Does some work within an allowance; raises the work's own exceptions and ExceededError."""

    def __call__(self, work: Callable[[], Established], allowance: Allowance) -> Established:
        """Return the result of the work."""


def directly(work: Callable[[], Established], allowance: Allowance) -> Established:
    """Do the work without limits, for trusted models."""
    return work()


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
    `data_dependent` are the tensors whose shape may depend on input values, as after NonZero; the dimensions that do
    have no number in `types`, as they have none for a compiler.
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
