"""What intake established of a model, as bytes: reading the same file again then runs and infers nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

_NOTES, _DATA_DEPENDENT, _COSTLY = "notes", "data_dependent", "costly"


@dataclass(frozen=True, kw_only=True, eq=False)
class Established:
    """The fields of `Model` that are costly to come by, under the same names."""

    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    data_dependent: tuple[str, ...]
    notes: tuple[str, ...]
    costly: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The same bytes for the same content: an ONNX model without nodes, its tensors being those that are known."""
        model = onnx.ModelProto()
        for name, kind in self.types.items():
            model.graph.value_info.add(name=name).type.CopyFrom(kind)
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.known.items())
        for key, texts in ((_NOTES, self.notes), (_DATA_DEPENDENT, self.data_dependent), (_COSTLY, self.costly)):
            model.metadata_props.add(key=key, value=json.dumps(texts))
        return model.SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Established":
        """What `to_bytes` wrote."""
        model = onnx.ModelProto.FromString(raw)
        texts = {entry.key: tuple(json.loads(entry.value)) for entry in model.metadata_props}
        return cls(
            types={value.name: value.type for value in model.graph.value_info},
            known={tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer},
            data_dependent=texts[_DATA_DEPENDENT],
            notes=texts[_NOTES],
            costly=texts.get(_COSTLY, ()),  # files of earlier versions have none
        )
