"""Qualcomm QNN, as `--backend qnn`."""

from onnxbisect_backends.vendors.qnn.backend import QnnBackend
from onnxbisect_backends.vendors.qnn.log import PATTERNS

__all__ = ["PATTERNS", "QnnBackend"]
