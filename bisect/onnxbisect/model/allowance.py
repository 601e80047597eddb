"""Limits on what it may cost to find out a model's shapes and known values.

onnx and onnxruntime compute whatever a model says: a Loop without end, a tensor that doubles. The engine starts no
process, so a caller that reads models of strangers passes a `Bounded` that does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from onnxbisect.model.established import Established

#: A model of a few kB needs a tenth of a second and 200 MB. Large ones get more by their bytes: hostile ones are small,
#: and a network of 100 MB may work for half a minute.
_SECONDS, _SECONDS_OF_MB = 20.0, 1.0
_MEMORY, _MEMORY_OF_BYTE = 1792 << 20, 16


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Seconds, of a machine that does nothing else, and bytes of memory."""

    seconds: float
    memory: int

    @classmethod
    def of(cls, size: int) -> "Allowance":
        """That of a model with so many bytes, external data included."""
        return cls(
            seconds=_SECONDS + _SECONDS_OF_MB * size / (1 << 20),
            memory=_MEMORY + _MEMORY_OF_BYTE * size,
        )


class ExceededError(Exception):
    """The work ended without a result; the text says how, behind a subject: "took more than 20 s"."""


class Bounded(Protocol):
    """Does some work within an allowance; raises what the work raises, and ExceededError."""

    def __call__(self, work: Callable[[], Established], allowance: Allowance) -> Established:
        """The result of the work."""


def directly(work: Callable[[], Established], allowance: Allowance) -> Established:
    """No bounds, for models of our own."""
    return work()
