"""A property of a model that compilers are known to object to."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How compilers react to a finding."""

    #: Most refuse the model.
    ERROR = "error"
    #: Some refuse it, or narrow it silently.
    WARNING = "warning"
    #: Worth knowing when reading a log.
    INFO = "info"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A preflight finding. `nodes` and `tensors` are names, in model order; `detail` says what exactly was seen.

    `remedy` is the id of the file remedy that does what `fix` advises, empty where none does.
    """

    id: str
    severity: Severity
    nodes: tuple[str, ...]
    tensors: tuple[str, ...]
    detail: str
    why: str
    fix: str
    remedy: str = ""
