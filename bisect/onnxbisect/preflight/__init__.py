"""What can be said of a model before any compiler is called."""

from onnxbisect.preflight.finding import Finding, Severity
from onnxbisect.preflight.run import Check, checks, preflight
from onnxbisect.preflight.summary import Inspection, OpCount, Tensor, inspect

__all__ = ["Check", "Finding", "Inspection", "OpCount", "Severity", "Tensor", "checks", "inspect", "preflight"]
