"""onnxruntime on the CPU, as `--backend onnxruntime`."""

from onnxbisect_backends.vendors.ort.backend import OnnxRuntimeBackend
from onnxbisect_backends.vendors.ort.log import PATTERNS

__all__ = ["PATTERNS", "OnnxRuntimeBackend"]
