"""A model file with what is known about its tensors: the input of remedies."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model import Established, Model
from onnxbisect.model.allowance import Allowance, Bounded, ExceededError, directly
from onnxbisect.model.load import MEMORY_LIMIT
from onnxbisect.model.read import original
from onnxbisect.model.scopes import constant_names
from onnxbisect.model.shapes import establish
from onnxbisect.rewrites import TensorFacts
from onnxbisect.rewrites.facts import unfixed


@dataclass(frozen=True, kw_only=True, eq=False)
class File:
    """`proto` is the file as stored, or after remedies; it is never modified.

    `types` and `known` are about tensors of its main graph, as in `Model`, for the dimensions of `inputs`: the graph
    inputs with the dimensions that the user bound. Dimensions that depend on input values are not in `types`.
    """

    proto: onnx.ModelProto
    types: Mapping[str, onnx.TypeProto]
    known: Mapping[str, np.ndarray]
    folder: Path
    inputs: Mapping[str, onnx.TypeProto] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> "File":
        """The file that a model was read from."""
        return cls(
            proto=original(model),
            types={**model.types, **{name: unfixed(model.types[name]) for name in model.data_dependent}},
            known=model.known,
            folder=model.path.parent,
            inputs={value.name: value.type for value in model.proto.graph.input},
        )

    @property
    def facts(self) -> TensorFacts:
        """The same facts for rules of single nodes."""
        return TensorFacts(self.proto, self.types, self.known, self.folder)

    def after(self, proto: onnx.ModelProto, types: Mapping[str, onnx.TypeProto] | None = None) -> "File":
        """The file after a change that added no tensors but those of `types`."""
        return replace(self, proto=proto, types={**self.types, **(types or {})})

    def examined(self, bounded: Bounded = directly) -> "File":
        """The file with facts about new tensors, found by running it; its nodes must be sorted.

        Facts that cannot be established within the allowance stay unknown.
        """
        allowance = Allowance.of(self.proto.ByteSize(), len(self.proto.graph.node))
        try:
            found = bounded(partial(_establish, self.proto, self.folder, allowance), allowance)
        except ExceededError:
            return self
        types = {**found.types, **{name: unfixed(found.types[name]) for name in found.data_dependent}}
        return replace(self, types={**self.types, **types}, known={**self.known, **found.known})


def _establish(proto: onnx.ModelProto, folder: Path, allowance: Allowance) -> Established:
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    constants = constant_names(plain.graph)
    for index in reversed(range(len(plain.graph.input))):
        if plain.graph.input[index].name in constants:
            del plain.graph.input[index]
    facts = establish(plain, folder, {}, memory_limit=min(MEMORY_LIMIT, allowance.memory), seconds=allowance.seconds)
    return Established(
        types=facts.types, known=facts.known, data_dependent=facts.data_dependent, notes=(), costly=facts.costly
    )
