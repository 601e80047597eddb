"""Content-addressed files (models, universes, reports, samples) in a folder or an S3 bucket, named by SHA-256.

A file appears under its name when it is complete, and never changes. Storing the same bytes again resets its age.
`discard` keeps young files, so that a client that was told that a file exists has time to create a job that needs it.
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
_PLACE = re.compile("([0-9a-f]{2})/([0-9a-f]{62})")


class FileStore(Protocol):
    """A file store. Every `sha256` is 64 lower-case hexadecimal digits; ValueError for anything else.

    Every method raises FilesUnreachableError if the store is on another host that cannot be reached.
    """

    def begin(self, *, limit: int | None = None, beside: Executor | None = None) -> Unfinished:
        """A file written in chunks; its digest is computed in `beside`.

        The caller calls `abandon` at the end, which has no effect on a finished file.
        """

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Stored:
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

    def _keep(self, path: Path, stored: Stored) -> None:
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


def written(unfinished: Unfinished, chunks: Iterable[bytes]) -> Stored:
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
