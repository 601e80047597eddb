"""Writes pieces at versions that a tool reads, so that it judges the ops of a newer file and not its version."""

from dataclasses import replace

import onnx

from onnxbisect.cut import Piece
from onnxbisect.file_remedies import File, repaired
from onnxbisect.model import Model
from onnxbisect.preflight import Reader

_REMEDIES = ("lower-opset", "lower-ir-version")


def readable(piece: Piece, model: Model, reader: Reader) -> Piece:
    """The piece of this model, lowered as far as it can be where it is newer than the tool reads.

    Nodes that have another form in the older operator set are written in that form; the others stay as they are.
    """
    if not is_newer(piece.proto, reader):
        return piece
    file = File(proto=piece.proto, types=model.types, known=model.known, folder=model.path.parent)
    return replace(piece, proto=repaired(file, _REMEDIES, reader).proto)


def is_newer(proto: onnx.ModelProto, reader: Reader) -> bool:
    """Whether its version of the format or its operator set is newer than the tool reads."""
    newer_ir = reader.newest_ir is not None and proto.ir_version > reader.newest_ir
    return newer_ir or (reader.newest_opset is not None and _opset(proto) > reader.newest_opset)


def version_changes(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """The versions in which they differ: `operator set 17 and ir_version 10`."""
    opset = f"operator set {_opset(after)}" if _opset(after) != _opset(before) else ""
    ir = f"ir_version {after.ir_version}" if after.ir_version != before.ir_version else ""
    return " and ".join(filter(None, (opset, ir)))


def _opset(proto: onnx.ModelProto) -> int:
    return next((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), 0)
