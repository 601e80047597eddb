"""Axera's pulsar2: everything that `--backend pulsar2` is made of."""

from onnxbisect_backends.vendors.pulsar2.backend import Pulsar2Backend
from onnxbisect_backends.vendors.pulsar2.texts import PATTERNS

__all__ = ["PATTERNS", "Pulsar2Backend"]
