"""The contents of a split's `manifest.json` as typed values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from onnxbisect.diagnosis import TargetEntry
from onnxbisect.json_form import to_json
from onnxbisect.split.schedule import PieceKind

#: The file's name.
MANIFEST = "manifest.json"
#: The value of `format`; an incompatible change increments the number.
FORMAT = "onnx-bisect/split@1"

#: Dimensions; None for one that is not known before the model runs.
Shape = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Value:
    """An input or output of the model. `dtype` is numpy's name, or a description for values that are not tensors."""

    name: str
    dtype: str
    shape: Shape | None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """An input of a piece, called `name` in its file and `tensor` in the model.

    `source` is the file of the piece that makes it; None for an input of the model.
    """

    name: str
    tensor: str
    dtype: str
    shape: Shape | None
    source: str | None


@dataclass(frozen=True, kw_only=True)
class Made:
    """An output of a piece. `readers` are the files of the pieces that read it; `output`: the model has it too."""

    name: str
    tensor: str
    dtype: str
    shape: Shape | None
    readers: tuple[str, ...]
    output: bool


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file with weights beside a piece."""

    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Custom:
    """The node of a piece that onnxruntime does not know.

    `op` is `domain:name`. `arguments` are names of the piece's inputs. None stands for a constant, which is in the file
    `constants` (.npz, beside the piece) under the argument's number, or for an argument that is not given.
    """

    op: str
    attributes: Mapping[str, object]
    arguments: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    constants: str


@dataclass(frozen=True, kw_only=True)
class WrittenPiece:
    """One piece.

    `compiled`: this file is known to compile; None for a piece of the host. `refused`: this file was compiled,
    and failed. `note` says how either is known. `share` is the piece's part of the model's estimated work. `nodes`
    counts nodes without Constants. A piece of the kind `custom` has a `custom` node.
    """

    file: str
    kind: PieceKind
    sha256: str
    data: DataFile | None
    compiled: bool | None
    refused: bool
    note: str
    share: float
    nodes: tuple[str, ...]
    inputs: tuple[Taken, ...]
    outputs: tuple[Made, ...]
    custom: Custom | None = None


@dataclass(frozen=True, kw_only=True)
class SplitProof:
    """Whether the pieces together gave the model's outputs, bit for bit; `reason` says why this is not proven."""

    proven: bool
    samples: int
    runtime: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The model that was split."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A model in pieces, in an order in which they can run. `target` is the NPU's target as in reports."""

    model: Source
    target: TargetEntry | None
    pieces: tuple[WrittenPiece, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    proof: SplitProof

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps({"format": FORMAT, **to_json(self)}, indent=1) + "\n"

    @property
    def refused(self) -> bool:
        """Whether a piece for the NPU was refused."""
        return any(piece.refused for piece in self.pieces)
