"""Errors whose text is one sentence that tells the user what to do.

Each class has the exit code of the command line; the service maps the classes to HTTP statuses.
"""

from typing import ClassVar


class OnnxBisectError(Exception):
    """Base class of all errors that this program raises on purpose; their text is shown to the user unchanged."""

    exit_code: ClassVar[int] = 2


class ModelError(OnnxBisectError):
    """The file is not a usable model: not ONNX, cyclic, data missing, dimensions unbound."""


class CutError(OnnxBisectError):
    """The named nodes or tensors cannot be cut out of the model."""


class OptionError(OnnxBisectError):
    """An option of the command, a backend or a profile is unknown or has a value that it cannot have."""


class ShortageError(OnnxBisectError):
    """This machine lacks a resource such as disk space.

    This says nothing about the model and gives no verdict: the search can continue when the resource is available.
    """

    exit_code: ClassVar[int] = 3


class BackendUnusableError(OnnxBisectError):
    """The compiler cannot be called here; the text says what to install."""

    exit_code: ClassVar[int] = 3
