"""Writes a model for an older operator set."""

from onnxbisect.file_remedies.lowering.forms import FORMS
from onnxbisect.file_remedies.lowering.opset import OLDEST, axes_to_attributes, lower_opset

__all__ = ["FORMS", "OLDEST", "axes_to_attributes", "lower_opset"]
