"""Content-addressed files (models, universes, reports, samples) in a folder or an S3 bucket, named by SHA-256.

A file appears under its name when it is complete, and never changes. Storing the same bytes again resets its age.
`discard` keeps young files, so that a client that was told that a file exists has time to create a job that needs it.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxbisect.errors import shortage
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
class StoredFile:
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
        keep: Callable[[Path, StoredFile], None],
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
            # start writing to disk early, because the end waits for unwritten bytes; the pages stay in the page cache
            if sys.platform == "linux":
                size = self._size - self._hurried
                os.posix_fadvise(self._file.fileno(), self._hurried, size, os.POSIX_FADV_DONTNEED)
            self._hurried = self._size

    def seal(self) -> StoredFile:
        """End the writing: all bytes are on disk, and the file is not yet visible."""
        self._digested()
        if not self._file.closed:
            with _room():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
        return StoredFile(sha256=self._digest.hexdigest(), size=self._size)

    def digest(self) -> "hashlib._Hash":
        """A digest of the bytes so far, to continue with."""
        self._digested()
        return self._digest.copy()

    def add_to(self, digest: "hashlib._Hash") -> None:
        """Add the bytes of a sealed file to the digest."""
        with self._path.open("rb") as file:
            while block := file.read(_AT_A_TIME):
                digest.update(block)

    def finish(self) -> StoredFile:
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
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the name is durable, too
        finally:
            os.close(folder)


@contextmanager
def _room() -> Iterator[None]:
    """Raises DiskFullError in place of an error about a full disk."""
    try:
        yield
    except OSError as error:
        if (short := shortage(error)) is None:
            raise
        raise DiskFullError(f"The server has no room for the file. {short}") from error


_SHA256 = re.compile("[0-9a-f]{64}")
_PLACE = re.compile("([0-9a-f]{2})/([0-9a-f]{62})")


class FileStore(Protocol):
    """A file store. Every `sha256` is 64 lower-case hexadecimal digits; ValueError for anything else.

    Every method raises FilesUnreachableError if the store is on another host that cannot be reached.
    """

    def begin(self, *, limit: int | None = None, beside: Executor | None = None) -> Unfinished:
        """A file written in chunks; its digest is computed in `beside`.

        The caller calls `abandon` at the end, which has no effect on a finished file.
        """

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> StoredFile:
        """Store the chunks as one file. TooLargeError beyond `limit` bytes, DiskFullError if the disk is or would
        become too full.

        Nothing is left after an error.
        """

    def path(self, sha256: str) -> Path:
        """The path of a local copy; FileNotFoundError if there is no such file."""

    def open(self, sha256: str) -> BinaryIO:
        """The file opened for reading; FileNotFoundError if there is none."""

    def size(self, sha256: str) -> int | None:
        """Its size in bytes, None if there is no such file."""

    def touch(self, sha256: str) -> bool:
        """Reset its age. False if there is no such file."""

    def discard(self, sha256: str, *, older_than: float) -> bool:
        """Delete it unless it was stored or touched within so many seconds. True if it is gone."""

    def names(self) -> Iterator[str]:
        """The SHA-256 of every file; what else is in the folder or bucket is left out."""

    def clear_unfinished(self, *, older_than: float) -> None:
        """Delete leftovers of processes that were killed more than so many seconds ago."""

    def check(self) -> None:
        """FilesUnreachableError if no file can be read or stored at the moment."""


class Files:
    """Files in a folder, on one machine or a shared disk; several processes may use it.

    `floor` is the number of bytes of the disk that stay free.
    """

    def __init__(self, folder: Path, *, floor: int = 1 << 30) -> None:
        self._folder = folder
        self._floor = floor
        # on the same file system, so that moving a file is atomic
        self._unfinished = folder / "unfinished"
        self._unfinished.mkdir(parents=True, exist_ok=True)

    def begin(self, *, limit: int | None = None, beside: Executor | None = None) -> Unfinished:
        return Unfinished(self._unfinished, self._keep, floor=self._floor, limit=limit, beside=beside)

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> StoredFile:
        return written(self.begin(limit=limit), chunks)

    def path(self, sha256: str) -> Path:
        place = self._place(sha256)
        place.stat()
        return place

    def open(self, sha256: str) -> BinaryIO:
        return self._place(sha256).open("rb")

    def size(self, sha256: str) -> int | None:
        try:
            return self._place(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def touch(self, sha256: str) -> bool:
        try:
            os.utime(self._place(sha256))
        except FileNotFoundError:
            return False
        return True

    def discard(self, sha256: str, *, older_than: float) -> bool:
        place = self._place(sha256)
        aside = self._unfinished / f"discarded-{sha256}"
        try:
            if age(place) < older_than:
                return False
            place.replace(aside)
        except FileNotFoundError:
            return True
        # It may have been touched in between. Without a name it cannot be touched any more.
        if age(aside) < older_than:
            aside.replace(place)
            return False
        aside.unlink()
        return True

    def names(self) -> Iterator[str]:
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            if (name := name_at(f"{path.parent.name}/{path.name}")) is not None:
                yield name

    def clear_unfinished(self, *, older_than: float) -> None:
        clear(self._unfinished, older_than)

    def check(self) -> None:
        """See `FileStore.check`; a folder needs no check."""

    def _place(self, sha256: str) -> Path:
        return self._folder / place_of(sha256)

    def _keep(self, path: Path, stored: StoredFile) -> None:
        keep_in(self._place(stored.sha256), path)


def place_of(sha256: str) -> str:
    """The path of a file below its folder or prefix; ValueError unless it is a SHA-256."""
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"{sha256!r} is no SHA-256 in hexadecimal")
    return f"{sha256[:2]}/{sha256[2:]}"


def name_at(place: str) -> str | None:
    """The SHA-256 of the file at this path below its folder or prefix; None if it is the place of no file."""
    found = _PLACE.fullmatch(place)
    return None if found is None else found[1] + found[2]


def written(unfinished: Unfinished, chunks: Iterable[bytes]) -> StoredFile:
    """Write all chunks and finish; nothing is left after an error."""
    try:
        for chunk in chunks:
            unfinished.write(chunk)
        return unfinished.finish()
    finally:
        unfinished.abandon()


def clear(folder: Path, older_than: float) -> None:
    """Delete the files of a folder that were not modified for so many seconds."""
    for path in folder.iterdir():
        if age(path) >= older_than:
            path.unlink(missing_ok=True)


def age(path: Path) -> float:
    """Seconds since the file was written or touched."""
    # a clock that was set back must not make files look old
    return max(time.time() - path.stat().st_mtime, 0.0)
