"""Read the original file of a model again."""

import onnx
from google.protobuf.message import DecodeError

from onnxbisect.model.model import Model


def filed(model: Model) -> onnx.ModelProto:
    """The proto as stored in the file, before normalisation; `model.proto` where the file cannot be read any more."""
    try:
        return onnx.load(model.path, load_external_data=False)
    except (OSError, DecodeError):
        return model.proto
