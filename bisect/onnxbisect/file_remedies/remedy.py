"""A file remedy: one change of a whole model file, with what is known of its tensors, that answers a finding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from onnxbisect.model import Established, Model
from onnxbisect.model.established import Allowance, Bounded, ExceededError, directly
from onnxbisect.model.facts import TensorFacts, unfixed
from onnxbisect.model.load import MEMORY_LIMIT
from onnxbisect.model.read import original
from onnxbisect.model.scopes import constant_names
from onnxbisect.model.shapes import establish
from onnxbisect.preflight import Reader
from onnxbisect.rewrites import Exactness


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


@dataclass(frozen=True, kw_only=True)
class RemediedFile:
    """A changed copy of a file. `sentence` says what was changed, without a full stop.

    `exactness` is None if it is that of the remedy. `types` are those of new tensors. `structure` says that nodes were
    added whose tensors are still unknown.
    """

    proto: onnx.ModelProto
    sentence: str
    exactness: Exactness | None = None
    types: Mapping[str, onnx.TypeProto] | None = None
    structure: bool = False


#: Changes a file for a tool. Raises NotApplicable, with the reason, if there is nothing to change or it is impossible.
Apply = Callable[[File, Reader], RemediedFile]


@dataclass(frozen=True, kw_only=True)
class FileRemedy:
    """`answers` are the ids of the findings after which it is tried. `domain` are the values for which it holds, if not
    all.
    """

    id: str
    answers: tuple[str, ...]
    exactness: Exactness
    summary: str
    apply: Apply
    domain: str = ""


def file_remedy(
    id: str,  # noqa: A002 - what it is called everywhere else
    *,
    answers: str,
    exactness: Exactness = Exactness.EXACT,
    domain: str = "",
) -> Callable[[Apply], FileRemedy]:
    """Make a remedy of a function, whose docstring becomes the summary. `answers` are separated by spaces."""

    def made(apply: Apply) -> FileRemedy:
        return FileRemedy(
            id=id,
            answers=tuple(answers.split()),
            exactness=exactness,
            summary=" ".join((apply.__doc__ or "").split()),
            apply=apply,
            domain=domain,
        )

    return made
