"""What can go wrong, said in one sentence that the user can act on.

Every class carries the exit code of the command line; the service maps the same classes to HTTP statuses.
"""

from typing import ClassVar


class OnnxBisectError(Exception):
    """Root of everything that this program raises on purpose; its text is shown to the user as it is."""

    exit_code: ClassVar[int] = 2


class ModelError(OnnxBisectError):
    """The file is no model that can be worked on: not ONNX, cyclic, data missing, dimensions left unbound."""


class CutError(OnnxBisectError):
    """The named nodes or tensors cannot be cut out of the model."""


class OptionError(OnnxBisectError):
    """An option of the command, a backend or a profile is unknown or has a value that it cannot have."""


class ShortageError(OnnxBisectError):
    """This machine is short of something, such as room on its disk. That says nothing about the model, and ends no
    search with a verdict: it can go on when there is enough again.
    """

    exit_code: ClassVar[int] = 3


class BackendUnusableError(OnnxBisectError):
    """The compiler cannot be called here; the text says what to install."""

    exit_code: ClassVar[int] = 3
