"""Axera's pulsar2, as `--backend pulsar2`."""

from onnxbisect_backends.vendors.pulsar2.backend import Pulsar2Backend
from onnxbisect_backends.vendors.pulsar2.texts import PATTERNS

__all__ = ["PATTERNS", "Pulsar2Backend"]
