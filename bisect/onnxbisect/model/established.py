"""What is established about a model, as bytes, so that reading its file again needs no run; and the limits of that.

onnx and onnxruntime execute whatever a model says, such as an endless Loop or a tensor that doubles in every step.
The engine starts no process, so a caller that reads untrusted models passes a `Bounded` that does the work in one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx
from onnx import numpy_helper

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
