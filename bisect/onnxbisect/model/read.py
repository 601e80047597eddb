"""Read a model file into a ModelProto and hash it; tensor data in other files is not loaded."""

import hashlib
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from onnxbisect.errors import ModelError
from onnxbisect.model.binding import bind
from onnxbisect.model.external import locations
from onnxbisect.model.gate import NEWEST_VERSION, demand_wellformed
from onnxbisect.model.input_values import bind_values
from onnxbisect.model.model import Model

_BLOCK = 1 << 22
#: Largest message that protobuf accepts, in bytes.
_MESSAGE_LIMIT = (1 << 31) - 1
#: Most characters of a name; real names have about a hundred, and longer ones slow down display, sorting and logs.
_LONGEST_NAME = 1 << 16


def read(path: Path) -> tuple[onnx.ModelProto, str, int]:
    """The file's proto with external data as references, the SHA-256 of all its bytes, and their number.

    The hash covers the model file and then each external file that it refers to, ordered by location.
    Raises ModelError for anything that is not a readable ONNX model with all its files.
    """
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a directory. Give the .onnx file inside it.")
        size = path.stat().st_size
        if size == 0:
            raise ModelError(f"{path} is empty. Export or download it again.")
        if size > _MESSAGE_LIMIT:
            raise ModelError(
                f"{path} has {size} bytes and no ONNX file can have more than 2 GB. Save it with external data."
            )
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(raw)
    except Exception as error:  # protobuf's DecodeError, which has no typed home to import it from
        raise ModelError(f"{path} is not an ONNX model: its bytes are no protobuf message. Export it again.") from error
    digest, size = hashlib.sha256(raw), len(raw)
    del raw
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{path} is not an ONNX model: it holds no graph. Give the .onnx file itself.")
    if not proto.opset_import:
        raise ModelError(f"{path} imports no operator set, so its ops have no meaning. Export it again.")
    if not 0 <= proto.ir_version <= NEWEST_VERSION:
        raise ModelError(f"{path} declares version {proto.ir_version} of the format, which is impossible.")
    if not proto.graph.node:
        raise ModelError(f"{path} has no nodes: there is nothing that a compiler could refuse.")
    _demand_names(path, proto)
    demand_wellformed(proto)
    for file in locations(proto, path.parent):
        size += _hash_file(digest, file)
    return proto, digest.hexdigest(), size


def _demand_names(path: Path, message: Message) -> None:
    """Raise ModelError for a name that is too long or not UTF-8. Metadata values are exempt: exporters store anything
    there.
    """
    if isinstance(message, onnx.TensorProto):  # to list its fields would copy the weights
        _demand_name(path, message.name)
        return
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.type == FieldDescriptor.TYPE_STRING and field.name != "doc_string":
            for text in values:
                _demand_name(path, text, free=field.full_name == "onnx.StringStringEntryProto.value")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in values:
                _demand_names(path, inner)


def _demand_name(path: Path, name: object, *, free: bool = False) -> None:
    # protobuf returns strings that are not UTF-8 as bytes, but does not accept them back.
    if isinstance(name, bytes):
        raise ModelError(
            f"{path} has the name {name[:100]!r}, which is not UTF-8 as ONNX demands. Export it with other names."
        )
    if isinstance(name, str) and len(name) > _LONGEST_NAME and not free:
        raise ModelError(
            f"{path} has a name of {len(name):,} characters, which begins with {name[:40]!r}; "
            f"the limit is {_LONGEST_NAME:,}. Export it with other names."
        )


def _hash_file(digest: "hashlib._Hash", file: Path) -> int:
    size = 0
    try:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                size += len(block)
        return size
    except OSError as error:
        raise ModelError(f"The external data file {file} cannot be read: {error}.") from error


def original(model: Model) -> onnx.ModelProto:
    """The proto as stored in the file, before normalisation, with values bound to inputs as in `model`.

    `model.proto` where the file cannot be read any more.
    """
    try:
        proto = onnx.load(model.path, load_external_data=False)
    except (OSError, DecodeError):
        return model.proto
    bind(proto.graph, {name: array.shape for name, array in model.input_values.items()})
    bind_values(proto, model.input_values)
    return proto
