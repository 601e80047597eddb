"""Errors whose text is one sentence that tells the user what to do, and what this machine lacks.

Each class has the exit code of the command line; the service maps the classes to HTTP statuses.
"""

import errno
from collections.abc import Mapping
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


_SENTENCES: Mapping[int, str] = {
    errno.ENOSPC: "The disk is full.",
    errno.EDQUOT: "The disk quota of this user is used up.",
    errno.EFBIG: "A file may not become as large here as it has to (ulimit -f).",
    errno.EROFS: "The disk can only be read.",
    errno.EIO: "The disk fails.",
    errno.EMFILE: "This process has too many files open (ulimit -n).",
    errno.ENFILE: "Too many files are open on this machine.",
    errno.ENOMEM: "The machine has no memory left.",
    errno.EAGAIN: "No more processes can be started here (ulimit -u).",
}
#: Error codes of SQLite and PostgreSQL, which differ from those of the operating system.
_DATABASES: Mapping[str, int] = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_IOERR_SHMSIZE": errno.ENOSPC,
    "SQLITE_NOMEM": errno.ENOMEM,
    "53100": errno.ENOSPC,
    "53200": errno.ENOMEM,
}


def shortage(error: BaseException) -> ShortageError | None:
    """The shortage that the error or one of its causes reports; None if there is none."""
    each: BaseException | None = error
    seen: set[int] = set()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        if isinstance(each, ShortageError):
            return each
        code = str(getattr(each, "sqlite_errorname", "") or getattr(each, "sqlstate", ""))
        number = each.errno if isinstance(each, OSError) else _DATABASES.get(code)
        if (said := _SENTENCES.get(number or 0)) is not None:
            return ShortageError(said)
        each = each.__cause__ or getattr(each, "orig", None) or each.__context__
    return None
