"""Intake: from an ONNX file to a Model."""

from onnxbisect.model.load import MEMORY_LIMIT, load
from onnxbisect.model.model import Model, Unit

__all__ = ["MEMORY_LIMIT", "Model", "Unit", "load"]
