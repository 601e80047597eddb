"""onnxruntime on the CPU, as `--backend onnxruntime`."""

from onnxbisect_backends.vendors.ort.backend import PATTERNS, OnnxRuntimeBackend

__all__ = ["PATTERNS", "OnnxRuntimeBackend"]
