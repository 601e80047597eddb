"""Files that are named by what is in them: models, universes, reports, samples.

A file is written beside its place and moved there when it is whole, so whoever sees the name sees all of the bytes. It
is written once; who stores the same bytes again only makes it young, and what is young is not cleared away
(`Files.discard`): whoever has just been told that a file is here has time to say in the database that it is needed.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxbisect_db.errors import TooLargeError
from onnxbisect_db.unfinished import Stored, Unfinished

_SHA256 = re.compile("[0-9a-f]{64}")


class FileStore(Protocol):
    """Where files are kept. Every `sha256` is 64 lower-case hexadecimal digits; ValueError for anything else."""

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Stored:
        """Store what the chunks make up; TooLargeError beyond `limit` bytes. After an error nothing is left of it."""

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
        """A file that comes piece by piece; its digest is made `beside` the writing. Whoever begins it abandons it in
        the end, which does nothing to a file that is finished.
        """
        return Unfinished(self._unfinished, self._place, floor=self._floor, limit=limit, beside=beside)

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Stored:
        """See `FileStore.put`; DiskFullError where the disk is, or would be, too full."""
        unfinished = self.begin(limit=limit)
        try:
            for chunk in chunks:
                unfinished.write(chunk)
            return unfinished.finish()
        finally:
            unfinished.abandon()

    def path(self, sha256: str) -> Path:
        """Where the file is, for programs that want a path; FileNotFoundError where there is none."""
        place = self._place(sha256)
        place.stat()
        return place

    def open(self, sha256: str) -> BinaryIO:
        """See `FileStore.open`."""
        return self._place(sha256).open("rb")

    def size(self, sha256: str) -> int | None:
        """See `FileStore.size`."""
        try:
            return self._place(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def touch(self, sha256: str) -> bool:
        """See `FileStore.touch`."""
        try:
            os.utime(self._place(sha256))
        except FileNotFoundError:
            return False
        return True

    def discard(self, sha256: str, *, older_than: float) -> bool:
        """See `FileStore.discard`."""
        place = self._place(sha256)
        aside = self._unfinished / f"discarded-{sha256}"
        try:
            if _age(place) < older_than:
                return False
            place.replace(aside)
        except FileNotFoundError:
            return True
        # Somebody may have touched it in between. Now that it has no name any more, nobody can.
        if _age(aside) < older_than:
            aside.replace(place)
            return False
        aside.unlink()
        return True

    def names(self) -> Iterator[str]:
        """See `FileStore.names`."""
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            yield path.parent.name + path.name

    def clear_unfinished(self, *, older_than: float) -> None:
        """Delete what processes that were killed have left behind."""
        for path in self._unfinished.iterdir():
            if _age(path) >= older_than:
                path.unlink(missing_ok=True)

    def _place(self, sha256: str) -> Path:
        _demand_sha256(sha256)
        return self._folder / sha256[:2] / sha256[2:]


class InMemoryFiles:
    """Files in this process: for tests."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, float]] = {}

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Stored:
        """See `FileStore.put`."""
        whole = b""
        for chunk in chunks:
            whole += chunk
            if limit is not None and len(whole) > limit:
                raise TooLargeError(f"The file is larger than {limit:,} bytes, which is the most that is taken here.")
        sha256 = hashlib.sha256(whole).hexdigest()
        self._files[sha256] = (whole, time.time())
        return Stored(sha256=sha256, size=len(whole))

    def open(self, sha256: str) -> BinaryIO:
        """See `FileStore.open`."""
        _demand_sha256(sha256)
        if sha256 not in self._files:
            raise FileNotFoundError(sha256)
        return BytesIO(self._files[sha256][0])

    def size(self, sha256: str) -> int | None:
        """See `FileStore.size`."""
        _demand_sha256(sha256)
        return len(self._files[sha256][0]) if sha256 in self._files else None

    def touch(self, sha256: str) -> bool:
        """See `FileStore.touch`."""
        _demand_sha256(sha256)
        if sha256 in self._files:
            self._files[sha256] = (self._files[sha256][0], time.time())
        return sha256 in self._files

    def discard(self, sha256: str, *, older_than: float) -> bool:
        """See `FileStore.discard`."""
        _demand_sha256(sha256)
        if sha256 in self._files and time.time() - self._files[sha256][1] < older_than:
            return False
        self._files.pop(sha256, None)
        return True

    def names(self) -> Iterator[str]:
        """See `FileStore.names`."""
        yield from list(self._files)


def _demand_sha256(sha256: str) -> None:
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"{sha256!r} is no SHA-256 in hexadecimal")


def _age(path: Path) -> float:
    # a clock that was set back must not make files look old
    return max(time.time() - path.stat().st_mtime, 0.0)
