"""What can be said of a model before any compiler is called."""

from onnxbisect.preflight.finding import Finding, Severity
from onnxbisect.preflight.run import Check, checks, preflight
from onnxbisect.preflight.summary import Inspection, OpCount, Tensor, inspect
from onnxbisect.preflight.target import NEWER_THAN_TOOL, Reader

__all__ = [
    "NEWER_THAN_TOOL",
    "Check",
    "Finding",
    "Inspection",
    "OpCount",
    "Reader",
    "Severity",
    "Tensor",
    "checks",
    "inspect",
    "preflight",
]
