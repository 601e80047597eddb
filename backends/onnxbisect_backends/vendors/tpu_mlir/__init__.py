"""Sophgo's TPU-MLIR, as `--backend tpu-mlir`."""

from onnxbisect_backends.vendors.tpu_mlir.backend import TpuMlirBackend
from onnxbisect_backends.vendors.tpu_mlir.log import PATTERNS

__all__ = ["PATTERNS", "TpuMlirBackend"]
