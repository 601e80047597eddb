"""The file that a model was read from, as it was given."""

import onnx
from google.protobuf.message import DecodeError

from onnxbisect.model.model import Model


def filed(model: Model) -> onnx.ModelProto:
    """The file before intake put it in order; what intake made of it where it is no longer there."""
    try:
        return onnx.load(model.path, load_external_data=False)
    except (OSError, DecodeError):
        return model.proto
