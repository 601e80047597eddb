"""A file on its way to its place: written beside it, and moved there when it is whole."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onnxbisect_db.errors import DiskFullError, TooLargeError

#: How often the free space is looked at while a file is written.
_LOOK_EVERY = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A file and its name."""

    sha256: str
    size: int


class Unfinished:
    """A file that is being written, by one thread at a time. Nobody sees it until it is finished."""

    def __init__(self, folder: Path, place: Callable[[str], Path], *, floor: int, limit: int | None) -> None:
        descriptor, name = tempfile.mkstemp(dir=folder)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb")
        self._place = place
        self._floor = floor
        self._limit = limit
        self._digest = hashlib.sha256()
        self._size = 0
        self._looked = -_LOOK_EVERY

    def write(self, chunk: bytes) -> None:
        """What comes next. TooLargeError beyond the limit, DiskFullError where the disk is, or would be, too full."""
        self._size += len(chunk)
        if self._limit is not None and self._size > self._limit:
            raise TooLargeError(f"The file is larger than {self._limit:,} bytes, which is the most that is taken here.")
        if self._size - self._looked >= _LOOK_EVERY:
            self._demand_space(len(chunk))
            self._looked = self._size
        self._digest.update(chunk)
        self._file.write(chunk)

    def seal(self) -> Stored:
        """There is no more to come: all of it is on disk, and still nobody sees it."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return Stored(sha256=self._digest.hexdigest(), size=self._size)

    def finish(self) -> Stored:
        """Seal it, and give it its name."""
        stored = self.seal()
        place = self._place(stored.sha256)
        place.parent.mkdir(exist_ok=True)
        self._path.replace(place)
        _sync(place.parent)
        return stored

    def abandon(self) -> None:
        """Delete it; a file that is finished stays."""
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # what is not written yet may not fit on the disk, and is not needed
            self._file.close()

    def _demand_space(self, size: int) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if free - size < self._floor:
            raise DiskFullError(
                f"The server's disk has {free:,} bytes left, of which {self._floor:,} are kept free: delete jobs, or "
                f"shorten how long they are kept."
            )


def _sync(folder: Path) -> None:
    """Make the name last, too: a directory is a file of its own."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
