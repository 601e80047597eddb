"""Detects whether a full disk, not the model, made a compiler or a cut fail."""

import os
import re
from pathlib import Path

from onnxbisect.errors import ShortageError
from onnxbisect.language import english
from onnxbisect.shortage import shortage

#: Free bytes below which a disk counts as full: the write that failed may have been larger.
_FULL = 64 << 10
_ELSEWHERE = english("make room there, or let TMPDIR name another place (ONNXBISECT_WORK for a worker).")
#: A compile with at least this fraction (1/10) of a full disk has filled it.
_SHARE = 10
#: Files that a cut or its checks may have open at a time.
_FILES = 8

#: The C library's messages for a full disk.
_WORDS = re.compile(r"No space left on device|Disk quota exceeded")


def disk_trouble(workdir: Path, log: str) -> str:
    """Why a full disk may be the cause of a compile's failure, as a sentence; empty if it is not.

    The compile has filled the disk of its work directory, or `log` reports a full disk: programs remove incomplete
    files, so there may be space again when they have ended. Raises ShortageError if other files fill the disk, or if
    the work directory is not writable.
    """
    state = os.statvfs(workdir)
    free = state.f_bfree if os.geteuid() == 0 else state.f_bavail
    if state.f_blocks and free * state.f_frsize < _FULL:
        if _bytes_of(workdir) * _SHARE < state.f_blocks * state.f_frsize:
            raise ShortageError(f"The disk for temporary files is full: {_ELSEWHERE}")
        return f"The compiler filled the disk for temporary files: {_ELSEWHERE}"
    if not os.access(workdir, os.W_OK):
        raise ShortageError(f"The folder for temporary files cannot be written to: {_ELSEWHERE}")
    if said := _WORDS.search(log):
        return f"The compiler could not write ({said[0]}): {_ELSEWHERE}"
    return ""


def _bytes_of(folder: Path) -> int:
    """The disk space of the files below a folder."""
    found = (Path(at, name).lstat() for at, _, names in os.walk(folder) for name in names)
    return sum(status.st_blocks * 512 for status in found)


def demand_plenty(folder: Path, error: BaseException | None = None) -> None:
    """Raise ShortageError if the machine, not the model, caused an error in the folder.

    It did if the error says so, or if no files can be written or opened there.
    """
    found = None if error is None else shortage(error)
    try:
        path = folder / "room"
        path.write_bytes(bytes(_FULL))
        path.unlink()
        for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(_FILES)]:
            os.close(descriptor)
    except OSError as failed:
        found = found or shortage(failed)
    if found is not None:
        raise found from error
