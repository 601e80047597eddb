"""Recognise errors caused by a lack of disk space, memory or processes on this machine."""

import errno
from collections.abc import Iterator, Mapping

from onnxbisect.errors import ShortageError

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
    for each in _origins(error):
        if isinstance(each, ShortageError):
            return each
        number = each.errno if isinstance(each, OSError) else _DATABASES.get(_code(each))
        if (said := _SENTENCES.get(number or 0)) is not None:
            return ShortageError(said)
    return None


def _code(error: BaseException) -> str:
    """A database driver's error code, by name or number."""
    return str(getattr(error, "sqlite_errorname", "") or getattr(error, "sqlstate", ""))


def _origins(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or getattr(error, "orig", None) or error.__context__
