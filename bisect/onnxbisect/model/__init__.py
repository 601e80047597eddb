"""Read an ONNX file into a `Model`."""

from onnxbisect.model.established import Established
from onnxbisect.model.load import MEMORY_LIMIT, load
from onnxbisect.model.model import Model, Unit

__all__ = ["MEMORY_LIMIT", "Established", "Model", "Unit", "load"]
