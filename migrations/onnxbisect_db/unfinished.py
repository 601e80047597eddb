"""A file that is being written: first beside its place, and moved there when complete."""

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

#: Bytes written between checks of the free space.
_LOOK_EVERY = 64 << 20
#: Bytes written between requests to flush to disk.
_HURRY_EVERY = 8 << 20
#: Most bytes per write: with 2 MiB, Linux took four times as long per byte.
_AT_A_TIME = 1 << 20
#: Fewest bytes of a chunk whose digest is computed in another thread.
_WORTH_A_THREAD = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A stored file's name and size."""

    sha256: str
    size: int


class Unfinished:
    """A file that is being written, by one thread at a time. When finished, `keep` moves it from its path.

    Its digest is computed in the executor `beside`, if given, and may be one chunk behind.
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
        """Append a chunk; its memory may be reused when the next write has returned.

        TooLargeError beyond the limit, DiskFullError if the disk is or would become too full.
        """
        self._size += len(chunk)
        if self._limit is not None and self._size > self._limit:
            raise TooLargeError(f"The file is larger than {self._limit:,} bytes, which is the most that is taken here.")
        if self._size - self._looked >= _LOOK_EVERY:
            demand_space(self._path.parent, len(chunk), floor=self._floor)
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
        """End the writing: all bytes are on disk, and the file is not yet visible."""
        self._digested()
        if not self._file.closed:
            with _room():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
        return Stored(sha256=self._digest.hexdigest(), size=self._size)

    def digest(self) -> "hashlib._Hash":
        """A digest of the bytes so far, to continue with."""
        self._digested()
        return self._digest.copy()

    def add_to(self, digest: "hashlib._Hash") -> None:
        """Add the bytes of a sealed file to the digest."""
        with self._path.open("rb") as file:
            while block := file.read(_AT_A_TIME):
                digest.update(block)

    def finish(self) -> Stored:
        """Seal it, and make it visible under its name."""
        stored = self.seal()
        self._keep(self._path, stored)
        return stored

    def abandon(self) -> None:
        """Delete it; a finished file stays."""
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # the rest may not fit on the disk, and is not needed
            self._file.close()

    def _digested(self) -> None:
        if self._digesting is not None:
            self._digesting.result()
            self._digesting = None

    def _hurry(self) -> None:
        """Start writing to disk early, because the end waits for unwritten bytes."""
        if sys.platform == "linux":
            # starts writing these pages; they stay in the page cache
            size = self._size - self._hurried
            os.posix_fadvise(self._file.fileno(), self._hurried, size, os.POSIX_FADV_DONTNEED)
        self._hurried = self._size


def demand_space(folder: Path, size: int, *, floor: int) -> None:
    """DiskFullError if fewer bytes than `floor` would be free after a file of this size."""
    free = shutil.disk_usage(folder).free
    if free - size < floor:
        raise DiskFullError(
            f"The server's disk has {free:,} bytes left, of which {floor:,} are kept free: delete jobs, or shorten how "
            f"long they are kept."
        )


def keep_in(place: Path, path: Path) -> None:
    """Move a file to its place, durably even after a power failure."""
    os.utime(path)  # its age counts from now, not from its last byte
    with _room():
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        _sync(place.parent)


@contextmanager
def _room() -> Iterator[None]:
    """Raises DiskFullError in place of an error about a full disk."""
    try:
        yield
    except OSError as error:
        if (short := shortage(error)) is None:
            raise
        raise DiskFullError(f"The server has no room for the file. {short}") from error


def _sync(folder: Path) -> None:
    """Flush the folder, so that the name is durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
