"""A file on its way to its place: written beside it, and moved there when it is whole."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from onnxbisect.shortage import shortage
from onnxbisect_db.errors import DiskFullError, TooLargeError

#: How often the free space is looked at while a file is written.
_LOOK_EVERY = 64 << 20
#: How often the disk is told to begin with what was written.
_HURRY_EVERY = 8 << 20
#: The most that is written at a time: of 2 MiB, each byte was seen to take Linux four times as long.
_AT_A_TIME = 1 << 20
#: How large a piece is worth the change of threads that its digest takes.
_WORTH_A_THREAD = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A file and its name."""

    sha256: str
    size: int


class Unfinished:
    """A file that is being written, by one thread at a time. Nobody sees it until it is finished: then `keep` is
    called with its path and takes the file from there.

    Its digest is computed `beside` the writing, where an executor is given, and may be one chunk behind.
    """

    def __init__(
        self,
        folder: Path,
        keep: Callable[[Path, Stored], None],
        *,
        floor: int,
        limit: int | None,
        beside: Executor | None = None,
    ) -> None:
        with _room():
            descriptor, name = tempfile.mkstemp(dir=folder)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb")
        self._keep = keep
        self._floor = floor
        self._limit = limit
        self._digest = hashlib.sha256()
        self._beside = beside
        self._digesting: Future[None] | None = None
        self._size = 0
        self._looked = -_LOOK_EVERY
        self._hurried = 0

    def write(self, chunk: bytes | memoryview) -> None:
        """What comes next; its memory may be used again when the next write has returned. TooLargeError beyond the
        limit, DiskFullError where the disk is, or would be, too full.
        """
        self._size += len(chunk)
        if self._limit is not None and self._size > self._limit:
            raise TooLargeError(f"The file is larger than {self._limit:,} bytes, which is the most that is taken here.")
        if self._size - self._looked >= _LOOK_EVERY:
            self._demand_space(len(chunk))
            self._looked = self._size
        self._digested()
        if self._beside is not None and len(chunk) >= _WORTH_A_THREAD:
            self._digesting = self._beside.submit(self._digest.update, chunk)
        else:
            self._digest.update(chunk)
        with _room():
            for at in range(0, len(chunk), _AT_A_TIME):
                self._file.write(chunk[at : at + _AT_A_TIME])
        if self._size - self._hurried >= _HURRY_EVERY:
            self._hurry()

    def seal(self) -> Stored:
        """There is no more to come: all of it is on disk, and still nobody sees it."""
        self._digested()
        if not self._file.closed:
            with _room():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
        return Stored(sha256=self._digest.hexdigest(), size=self._size)

    def digest(self) -> "hashlib._Hash":
        """Of what was written, to go on with."""
        self._digested()
        return self._digest.copy()

    def add_to(self, digest: "hashlib._Hash") -> None:
        """Make the bytes of a file that is sealed part of what the digest is of."""
        with self._path.open("rb") as file:
            while block := file.read(_AT_A_TIME):
                digest.update(block)

    def finish(self) -> Stored:
        """Seal it, and give it its name."""
        stored = self.seal()
        self._keep(self._path, stored)
        return stored

    def abandon(self) -> None:
        """Delete it; a file that is finished stays."""
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # what is not written yet may not fit on the disk, and is not needed
            self._file.close()

    def _digested(self) -> None:
        if self._digesting is not None:
            self._digesting.result()
            self._digesting = None

    def _hurry(self) -> None:
        """Let the disk work while more comes: what it has not written by the end is waited for."""
        if sys.platform == "linux":
            # which begins to write it; what is being written stays in memory
            size = self._size - self._hurried
            os.posix_fadvise(self._file.fileno(), self._hurried, size, os.POSIX_FADV_DONTNEED)
        self._hurried = self._size

    def _demand_space(self, size: int) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if free - size < self._floor:
            raise DiskFullError(
                f"The server's disk has {free:,} bytes left, of which {self._floor:,} are kept free: delete jobs, or "
                f"shorten how long they are kept."
            )


def keep_in(place: Path, path: Path) -> None:
    """Move a file to its place, for good: it is there after a power failure, too."""
    os.utime(path)  # it is young from here on, however long ago its last byte came
    with _room():
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        _sync(place.parent)


@contextmanager
def _room() -> Iterator[None]:
    """DiskFullError for an error that says that the disk is full."""
    try:
        yield
    except OSError as error:
        if (short := shortage(error)) is None:
            raise
        raise DiskFullError(f"The server has no room for the file. {short}") from error


def _sync(folder: Path) -> None:
    """Make the name last, too: a directory is a file of its own."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
