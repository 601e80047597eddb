"""Serialise what was established about a model, so that reading the same file again needs no run and no inference."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

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
