"""A model written for an older operator set."""

from onnxbisect.file_remedies.lowering.opset import OLDEST, lower_opset

__all__ = ["OLDEST", "lower_opset"]
