"""Files that are named by their SHA-256: models, universes, reports, samples. In a folder, or in an S3 bucket.

A file appears under its name when it is complete, and never changes. To store the same bytes again only makes the file
young. `discard` keeps young files: a client that was told that a file is here has time to create a job that needs it.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxbisect_db.unfinished import Stored, Unfinished, keep_in

_SHA256 = re.compile("[0-9a-f]{64}")


class FileStore(Protocol):
    """Where files are kept. Every `sha256` is 64 lower-case hexadecimal digits; ValueError for anything else.

    Every method raises FilesUnreachableError where the store is on another host that cannot be reached.
    """

    def begin(self, *, limit: int | None = None, beside: Executor | None = None) -> Unfinished:
        """A file that comes piece by piece; its digest is computed `beside` the writing. The caller calls `abandon` in
        the end, which does nothing to a file that is finished.
        """

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Stored:
        """Store the chunks as one file; TooLargeError beyond `limit` bytes, DiskFullError where the disk is, or would
        be, too full. After an error nothing is left of it.
        """

    def path(self, sha256: str) -> Path:
        """The path of the file on this host, to read; FileNotFoundError where there is none."""

    def open(self, sha256: str) -> BinaryIO:
        """The file, to read; FileNotFoundError where there is none."""

    def size(self, sha256: str) -> int | None:
        """Its size, None where there is none."""

    def touch(self, sha256: str) -> bool:
        """Make it young, if it is there."""

    def discard(self, sha256: str, *, older_than: float) -> bool:
        """Delete it, unless it was stored or touched within so many seconds. True where it is gone now."""

    def names(self) -> Iterator[str]:
        """The SHA-256 of every file."""

    def clear_unfinished(self, *, older_than: float) -> None:
        """Delete what processes that were killed more than so many seconds ago have left behind."""

    def check(self) -> None:
        """FilesUnreachableError where no file can be read or stored at the moment."""


class Files:
    """Files in a folder, which processes on one machine or a shared disk may use at the same time.

    `floor` is how many bytes of the disk stay free.
    """

    def __init__(self, folder: Path, *, floor: int = 1 << 30) -> None:
        self._folder = folder
        self._floor = floor
        # of the same file system, or a file could not be moved to its place in one step
        self._unfinished = folder / "unfinished"
        self._unfinished.mkdir(parents=True, exist_ok=True)

    def begin(self, *, limit: int | None = None, beside: Executor | None = None) -> Unfinished:
        return Unfinished(self._unfinished, self._keep, floor=self._floor, limit=limit, beside=beside)

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Stored:
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
        # Somebody may have touched it in between. Now that it has no name any more, nobody can.
        if age(aside) < older_than:
            aside.replace(place)
            return False
        aside.unlink()
        return True

    def names(self) -> Iterator[str]:
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            yield path.parent.name + path.name

    def clear_unfinished(self, *, older_than: float) -> None:
        clear(self._unfinished, older_than)

    def check(self) -> None:
        """See `FileStore.check`; a folder needs none."""

    def _place(self, sha256: str) -> Path:
        return self._folder / place_of(sha256)

    def _keep(self, path: Path, stored: Stored) -> None:
        keep_in(self._place(stored.sha256), path)


def place_of(sha256: str) -> str:
    """Where a file is below its folder or prefix; ValueError unless it is a SHA-256."""
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"{sha256!r} is no SHA-256 in hexadecimal")
    return f"{sha256[:2]}/{sha256[2:]}"


def written(unfinished: Unfinished, chunks: Iterable[bytes]) -> Stored:
    """Write all chunks and finish; nothing is left after an error."""
    try:
        for chunk in chunks:
            unfinished.write(chunk)
        return unfinished.finish()
    finally:
        unfinished.abandon()


def clear(folder: Path, older_than: float) -> None:
    """Delete the files of a folder that were not written to for so many seconds."""
    for path in folder.iterdir():
        if age(path) >= older_than:
            path.unlink(missing_ok=True)


def age(path: Path) -> float:
    """Seconds since the file was written or touched."""
    # a clock that was set back must not make files look old
    return max(time.time() - path.stat().st_mtime, 0.0)
