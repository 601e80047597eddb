"""Whether a failed write, not the model, is what a compiler or a cut stumbled over."""

import os
import re
from pathlib import Path

from onnxbisect.errors import ShortageError
from onnxbisect.shortage import shortage

#: Bytes below which a disk counts as full: the last write of those that filled it may have been larger.
_FULL = 64 << 10
_ELSEWHERE = "make room there, or let TMPDIR name another place (ONNXBISECT_WORK for a worker)."
#: A compile that has written the tenth part of a full disk is what has filled it.
_SHARE = 10
#: Files that a cut, or a referee of it, may have open at a time.
_FILES = 8

#: What programs say of a disk that takes no more, in the words of the C library.
_WORDS = re.compile(r"No space left on device|Disk quota exceeded")


def disk_trouble(workdir: Path, log: str) -> str:
    """A sentence where a compile has filled the disk of its work directory by itself, or a failure's log complains of a
    full disk; else empty. ShortageError where that disk is full and the compile has little on it.

    Programs remove what they could not finish, so that there is room again when they have ended: hence the log.
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
    """What files below it take of the disk."""
    found = (Path(at, name).lstat() for at, _, names in os.walk(folder) for name in names)
    return sum(status.st_blocks * 512 for status in found)


def demand_plenty(folder: Path, error: BaseException | None = None) -> None:
    """ShortageError where the machine, not the model, is to blame for something that went wrong in the folder: where
    the error says so, or where no files can be written or opened there.
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
