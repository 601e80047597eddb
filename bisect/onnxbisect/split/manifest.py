"""What `manifest.json` of a split says, as values."""

import json
from dataclasses import asdict, dataclass

from onnxbisect.report.contents import TargetEntry
from onnxbisect.split.schedule import Kind

#: The value of `format`; a change that breaks readers counts the number up.
FORMAT = "onnx-bisect/split@1"

#: Dimensions; None where one is not known before the model runs.
Shape = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Value:
    """An input or output of the model. `dtype` is numpy's name, or a description of what is no tensor."""

    name: str
    dtype: str
    shape: Shape | None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """An input of a piece: `name` in its file, `tensor` in the model. `source` is the file of the piece that makes it,
    None for an input of the model.
    """

    name: str
    tensor: str
    dtype: str
    shape: Shape | None
    source: str | None


@dataclass(frozen=True, kw_only=True)
class Made:
    """An output of a piece. `readers` are the files of the pieces that take it; `output`: it is one of the model's."""

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
class Entry:
    """One piece. `compiled`: exactly this piece is known to compile; None for a piece of the host. `refused`: this
    file was compiled, and failed. `note` says how either is known.

    `share` is the piece's part of the model's estimated work. `nodes` are without Constants.
    """

    file: str
    kind: Kind
    sha256: str
    data: DataFile | None
    compiled: bool | None
    refused: bool
    note: str
    share: float
    nodes: tuple[str, ...]
    inputs: tuple[Taken, ...]
    outputs: tuple[Made, ...]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Whether the pieces together gave the model's outputs, bit for bit; `reason` says why that is not proven."""

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
    """A model in pieces, in an order in which they run. `target` is what the NPU pieces are for, as reports have it."""

    model: Source
    target: TargetEntry | None
    pieces: tuple[Entry, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    proof: Proof

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @property
    def refused(self) -> bool:
        """Whether a piece for the NPU was refused."""
        return any(piece.refused for piece in self.pieces)
