"""Rockchip's RKNN-Toolkit2, as `--backend rknn`."""

from onnxbisect_backends.vendors.rknn.backend import RknnBackend
from onnxbisect_backends.vendors.rknn.log import PATTERNS

__all__ = ["PATTERNS", "RknnBackend"]
