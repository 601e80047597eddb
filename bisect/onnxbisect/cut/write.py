"""Write a piece to a file, or the model as its own file has it, with the weights of external data files.

onnx and onnxruntime refuse external data outside the model's folder, and symbolic links to it. So a piece in another
folder gets a copy of the bytes of its own tensors. They are copied from file to file without a protobuf in between;
file systems that can share blocks copy nothing.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx import TensorProto

from onnxbisect.errors import CutError, ModelError
from onnxbisect.model.binding import bind, forget_shapes, names_dimension, resized
from onnxbisect.model.external import external_tensors, locations, place_of
from onnxbisect.model.input_values import bind_values
from onnxbisect.model.model import Model
from onnxbisect.model.scopes import bodies
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


def as_written(model: Model, input_shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """What the model's file holds, with these dimensions and the model's values of inputs bound.

    External data stay references. Raises ModelError if the file cannot be read any more.
    """
    proto = _read(model)
    return _bound(proto, model, input_shapes) or proto


def write_as_written(model: Model, input_shapes: Mapping[str, Sequence[int]], path: Path) -> None:
    """Write the model's file to `path`, and its data files beside it under their own names.

    Dimensions that `input_shapes` bind, and bound values of inputs, are written into a copy that is otherwise
    unchanged: names, order of nodes and declared types stay as they are. Raises ModelError if the file or its data
    cannot be read any more.
    """
    proto = _read(model)
    bound = _bound(proto, model, input_shapes)
    files = locations(proto, model.path.parent)
    if any(_beside(file, model, path) == path for file in files):  # its data file is called as the probe is
        write(bound or proto, model, path)
        return
    if bound is None:
        shutil.copyfile(model.path, path)
    else:
        path.write_bytes(bound.SerializeToString(deterministic=True))
    for file in files:
        copy = _beside(file, model, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _read(model: Model) -> onnx.ModelProto:
    try:
        return onnx.load(model.path, load_external_data=False)
    except Exception as error:  # OSError, or protobuf's DecodeError, which has no typed home to import it from
        raise ModelError(f"{model.path} cannot be read any more: {error}.") from error


def _beside(file: Path, model: Model, path: Path) -> Path:
    return path.parent / file.relative_to(model.path.parent)


def _bound(proto: onnx.ModelProto, model: Model, input_shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto | None:
    """A copy with what was bound; None if the file has it already."""
    if not input_shapes and not model.input_values:
        return None
    bound = with_sizes(proto, {**{name: array.shape for name, array in model.input_values.items()}, **input_shapes})
    bind_values(bound, model.input_values)
    return None if bound == proto else bound


def with_sizes(proto: onnx.ModelProto, input_shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy whose inputs have these shapes, and in which the names of the bound dimensions are numbers."""
    bound = onnx.ModelProto()
    bound.CopyFrom(proto)
    if resized(bound.graph, input_shapes):
        forget_shapes(bound.graph)  # they are those of another size
    bind(bound.graph, input_shapes)
    # the number that each name of a dimension was bound to, if it is one
    numbers: dict[str, set[int]] = {}
    for old, new in zip(proto.graph.input, bound.graph.input, strict=True):
        for one, other in zip(old.type.tensor_type.shape.dim, new.type.tensor_type.shape.dim, strict=False):
            if names_dimension(one.dim_param):
                numbers.setdefault(one.dim_param, set()).add(other.dim_value if other.HasField("dim_value") else -1)
    _replace(
        bound.graph, {name: next(iter(bound)) for name, bound in numbers.items() if len(bound) == 1 and min(bound) >= 0}
    )
    return bound


def _replace(graph: onnx.GraphProto, numbers: Mapping[str, int]) -> None:
    """Write these numbers for symbols of declared types, so that the file does not contradict itself."""
    for value in (*graph.value_info, *graph.output):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_param in numbers:
                dim.dim_value = numbers[dim.dim_param]
    for node in graph.node:
        for body in bodies(node):
            _replace(body, numbers)


def same_but_for_names(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    """Whether two models are equal, but for the names of nodes that have none in `one`."""
    if len(one.graph.node) != len(other.graph.node):
        return False
    copy = onnx.ModelProto()
    copy.CopyFrom(other)
    for node, named in zip(one.graph.node, copy.graph.node, strict=True):
        if not node.name:
            named.name = ""
    return bool(one == copy)
