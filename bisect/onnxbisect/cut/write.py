"""Write a piece to a file, with the weights that the model keeps in external data files.

onnx and onnxruntime refuse external data outside the model's folder, and symbolic links to it. So a piece in another
folder gets a copy of the bytes of its own tensors. They are copied from file to file without a protobuf in between;
file systems that can share blocks copy nothing.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx import TensorProto

from onnxbisect.errors import CutError, ModelError
from onnxbisect.model.external import external_tensors, place_of
from onnxbisect.model.model import Model
from onnxbisect.probe_format import ProbeFormat
from onnxbisect.unitset import UnitSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A set of units as a stand-alone model.

    `proto` still refers to external data beside the original file; `onnxbisect.cut.write` updates the references. Node
    names are those of the model. `renamed` maps the name of each tensor that was renamed for the target to its name in
    the model. `external_nodes` tells that nodes of the model, not only initializers, refer to external data.
    """

    units: UnitSet
    proto: onnx.ModelProto
    renamed: Mapping[str, str]
    probe_format: ProbeFormat
    external_nodes: bool

    def original(self, name: str) -> str:
        """The model's name of a node or tensor that the piece, and so a compiler's log, calls `name`."""
        return self.renamed.get(name, name)


#: Largest size of one protobuf message, in bytes.
_PROTOBUF_LIMIT = 2**31 - 1
#: Alignment of tensors in a data file, in bytes: one cache line, which is enough for any vector unit.
_ALIGNMENT = 64
_CHUNK = 8 << 20


@dataclass(frozen=True, kw_only=True)
class _Span:
    """The file and byte range that holds a tensor."""

    file: Path
    offset: int
    length: int


def write(piece: Piece | onnx.ModelProto, model: Model, path: Path, *, self_contained: bool = False) -> None:
    """Write a piece of `model` as the ONNX file `path`.

    In the model's own folder, references to external data stay as they are; for another folder the referenced bytes are
    copied to `<stem>.data` beside `path`. With `self_contained`, or where the piece's format demands it, the bytes are
    stored inside the file. Raises CutError where that exceeds protobuf's 2 GB, ModelError where data is missing.
    """
    if isinstance(piece, Piece):
        proto, inside, in_nodes = piece.proto, self_contained or piece.probe_format.self_contained, piece.external_nodes
    else:
        proto, inside, in_nodes = piece, self_contained, True
    folder = model.path.parent
    if (inside or path.parent.resolve() != folder.resolve()) and external_tensors(proto, in_nodes=in_nodes):
        # Edit a copy: the caller may write the same piece again, to another folder.
        own = onnx.ModelProto()
        own.CopyFrom(proto)
        proto = own
        external = external_tensors(proto, in_nodes=in_nodes)
        if inside:
            _take_inside(proto, external, folder)
        else:
            _copy_beside(external, folder, path.with_name(path.stem + ".data"))
    try:
        content = proto.SerializeToString(deterministic=True)
    except Exception as error:  # protobuf's EncodeError, whose module has no types; serialising fails in no other way
        raise _too_large() from error
    path.write_bytes(content)


def store_inside(proto: onnx.ModelProto, folder: Path) -> None:
    """Move the weights that lie in files of `folder` into the model. Raises CutError where that exceeds 2 GB."""
    _take_inside(proto, external_tensors(proto), folder)


def _take_inside(proto: onnx.ModelProto, external: Sequence[TensorProto], folder: Path) -> None:
    spans = [(tensor, _span(tensor, folder)) for tensor in external]
    total = proto.ByteSize() + sum(span.length for _, span in spans)
    if total > _PROTOBUF_LIMIT:
        raise _too_large()
    for tensor, span in spans:
        with _open(span) as source:
            source.seek(span.offset)
            tensor.raw_data = source.read(span.length)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def _copy_beside(external: Sequence[TensorProto], folder: Path, target: Path) -> None:
    written: dict[_Span, int] = {}
    with target.open("wb") as sink:
        for tensor in external:
            span = _span(tensor, folder)
            if span not in written:
                start = -(-sink.tell() // _ALIGNMENT) * _ALIGNMENT
                sink.seek(start)
                with _open(span) as source:
                    _copy(source, sink, span)
                written[span] = start
            del tensor.external_data[:]
            for key, value in (("location", target.name), ("offset", written[span]), ("length", span.length)):
                tensor.external_data.add(key=key, value=str(value))
        sink.truncate()


def _span(tensor: TensorProto, folder: Path) -> _Span:
    file, offset, length = place_of(tensor, folder)
    return _Span(file=file, offset=offset, length=length)


def _open(span: _Span) -> BinaryIO:
    try:
        source = span.file.open("rb")
    except OSError as error:
        raise ModelError(f"The data file {span.file.name!r} of the model cannot be read any more: {error}.") from error
    if os.fstat(source.fileno()).st_size < span.offset + span.length:
        source.close()
        raise ModelError(f"The data file {span.file.name!r} of the model has become shorter; copy it again, whole.")
    return source


def _copy(source: BinaryIO, sink: BinaryIO, span: _Span) -> None:
    """Copy the bytes of `span` to the current position of `sink`, in the kernel where possible, sharing blocks."""
    sink.flush()
    done = 0
    position = sink.tell()
    while done < span.length and hasattr(os, "copy_file_range"):
        try:
            moved = os.copy_file_range(
                source.fileno(), sink.fileno(), span.length - done, span.offset + done, position + done
            )
        except OSError:  # other file system, or one that cannot: the loop below does it
            break
        if moved == 0:
            break
        done += moved
    source.seek(span.offset + done)
    sink.seek(position + done)
    while done < span.length:
        chunk = source.read(min(_CHUNK, span.length - done))
        if not chunk:
            raise ModelError(f"The data file {span.file.name!r} of the model has become shorter; copy it again, whole.")
        sink.write(chunk)
        done += len(chunk)


def _too_large() -> CutError:
    return CutError(
        "The piece with its weights is larger than the 2 GB that an ONNX file can hold; "
        "cut out fewer nodes or let the weights lie beside the file."
    )
