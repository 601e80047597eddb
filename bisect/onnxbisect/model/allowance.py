"""Limits on the time and memory spent to establish a model's shapes and known values.

onnx and onnxruntime execute whatever a model says, such as an endless Loop or a tensor that doubles in every step.
The engine starts no process, so a caller that reads untrusted models passes a `Bounded` that does the work in one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from onnxbisect.model.established import Established

#: A model of a few kB needs 0.1 s and 200 MB. The limits grow with the file: hostile models are small, and a network
#: of 100 MB may need half a minute. Nodes take time, too, however small they are.
_SECONDS, _SECONDS_OF_MB, _SECONDS_OF_NODE = 20.0, 1.0, 0.0005
_MEMORY, _MEMORY_OF_BYTE = 1792 << 20, 16


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Limits: seconds on an idle machine, and bytes of memory."""

    seconds: float
    memory: int

    @classmethod
    def of(cls, size: int, nodes: int = 0) -> "Allowance":
        """The allowance for a model of `size` bytes, external data included, and so many nodes in its graph."""
        return cls(
            seconds=_SECONDS + _SECONDS_OF_MB * size / (1 << 20) + _SECONDS_OF_NODE * nodes,
            memory=_MEMORY + _MEMORY_OF_BYTE * size,
        )


class ExceededError(Exception):
    """The work exceeded its allowance; the text continues a sentence, as in "took more than 20 s"."""


class Bounded(Protocol):
    """Does some work within an allowance; raises the work's own exceptions and ExceededError."""

    def __call__(self, work: Callable[[], Established], allowance: Allowance) -> Established:
        """Return the result of the work."""


def directly(work: Callable[[], Established], allowance: Allowance) -> Established:
    """Do the work without limits, for trusted models."""
    return work()
