"""Files in an S3 bucket, for hosts without a shared disk.

An upload is first written to a local folder, because its name is the SHA-256 of all its bytes. A read file is
downloaded to a local cache, verified by its digest, and read from there.

S3 can reset an object's age only by copying it, so `touch` writes an empty object `touched/SHA256`: the age of a file
is that of the younger of the two.
"""

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from onnxbisect.errors import OptionError
from onnxbisect_db.errors import DamagedFileError, FilesUnreachableError
from onnxbisect_db.files import StoredFile, Unfinished, age, clear, keep_in, name_at, place_of, written

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ABSENT = ("404", "NoSuchKey")
_BLOCK = 1 << 20
#: Seconds to connect, and to wait for the next bytes of an answer; attempts of one request.
_CONNECTING, _SILENCE, _ATTEMPTS = 3.0, 10.0, 3
#: Seconds of each in `check`, which tries once.
_CHECKING = 2.0
#: Seconds for which nothing is asked of a server that did not answer in time.
_PAUSE = 10.0
#: Seconds for which a file that was not what its name says is not downloaded again.
_DAMAGED_SECONDS = 300.0
#: Seconds that a file stays in a full cache, in which the caller with its path opens it.
_IN_USE = 3600.0


class S3Files:
    """A `FileStore` in `s3://BUCKET/PREFIX`. boto3 finds the server and the credentials as usual, such as in
    `AWS_ENDPOINT_URL_S3`, `AWS_ACCESS_KEY_ID` or a role of the machine.

    `folder` belongs to this host and may be deleted while no process runs. `floor` is the number of bytes of its disk
    that stay free, `cache` the bytes of files kept there. Raises OptionError if boto3 is missing.
    """

    def __init__(self, url: str, folder: Path, *, floor: int = 1 << 30, cache: int = 20 << 30) -> None:
        self._bucket, _, prefix = url.removeprefix("s3://").strip("/").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._floor = floor
        self._cache_bytes = cache
        self._cache = folder / "cache"
        self._unfinished = folder / "unfinished"  # on the same file system, so that moves are atomic
        for each in (self._cache, self._unfinished):
            each.mkdir(parents=True, exist_ok=True)
        self._evicting = Lock()
        self._client = _connected(connecting=_CONNECTING, silence=_SILENCE, attempts=_ATTEMPTS)
        self._checking = _connected(connecting=_CHECKING, silence=_CHECKING, attempts=1)
        self._silent_until = 0.0
        self._damaged_until: dict[str, float] = {}

    def begin(self, *, limit: int | None = None, beside: Executor | None = None) -> Unfinished:
        return Unfinished(self._unfinished, self._upload, floor=self._floor, limit=limit, beside=beside)

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> StoredFile:
        return written(self.begin(limit=limit), chunks)

    def path(self, sha256: str) -> Path:
        """See `FileStore.path`: the path of a copy in the cache."""
        place = self._cache / place_of(sha256)
        try:
            os.utime(place)
        except FileNotFoundError:
            self._download(sha256, place)
            self._evict()
        return place

    def open(self, sha256: str) -> BinaryIO:
        return self.path(sha256).open("rb")

    def size(self, sha256: str) -> int | None:
        try:
            with self._reached():
                return self._client.head_object(Bucket=self._bucket, Key=self._key(sha256))["ContentLength"]
        except FileNotFoundError:
            return None

    def touch(self, sha256: str) -> bool:
        marker = self._marker(sha256)
        with self._reached():
            self._client.put_object(Bucket=self._bucket, Key=marker)
        if self.size(sha256) is not None:  # checked last, because `discard` checks the marker after it removed the file
            return True
        self._delete(marker)
        return False

    def discard(self, sha256: str, *, older_than: float) -> bool:
        key, marker, aside = self._key(sha256), self._marker(sha256), f"{self._prefix}discarded/{sha256}"
        if self.size(sha256) is None:
            return True
        if self._age(key, marker) < older_than:
            return False
        try:
            self._copy(key, aside)
        except FileNotFoundError:
            return True
        self._delete(key)
        # another process may have touched it in between; from now on `touch` finds no file
        kept = self._age(marker) < older_than
        if kept:
            self._copy(aside, key)
        else:
            self._delete(marker)
            (self._cache / place_of(sha256)).unlink(missing_ok=True)
        self._delete(aside)
        return not kept

    def names(self) -> Iterator[str]:
        for key, _ in self._listed(""):
            if (name := name_at(key.removeprefix(self._prefix))) is not None:
                yield name

    def clear_unfinished(self, *, older_than: float) -> None:
        """See `FileStore.clear_unfinished`; rules of the bucket clear uploads in parts."""
        clear(self._unfinished, older_than)
        for folder in ("touched/", "discarded/"):
            for key, seconds in list(self._listed(folder)):
                if seconds >= older_than:
                    self._delete(key)

    def check(self) -> None:
        try:
            with self._reached(checks=True):
                self._checking.head_bucket(Bucket=self._bucket)
        except FileNotFoundError:
            raise FilesUnreachableError(f"There is no bucket {self._bucket} on the file store.") from None

    def _upload(self, path: Path, stored: StoredFile) -> None:
        if not self.touch(stored.sha256):
            with self._reached():
                self._client.upload_file(str(path), self._bucket, self._key(stored.sha256))
        path.unlink()

    def _download(self, sha256: str, place: Path) -> None:
        damaged = DamagedFileError(
            f"The file store s3://{self._bucket} has other bytes than it was given for {sha256}: the file was changed, "
            f"or its disk is broken. Delete {self._key(sha256)} there, and upload the file or start the job again."
        )

        def keep(path: Path, stored: StoredFile) -> None:
            if stored.sha256 != sha256:
                self._damaged_until[sha256] = time.monotonic() + _DAMAGED_SECONDS
                raise damaged
            keep_in(place, path)

        if time.monotonic() < self._damaged_until.get(sha256, 0.0):
            raise damaged
        with self._reached():
            body = self._client.get_object(Bucket=self._bucket, Key=self._key(sha256))["Body"]
            written(Unfinished(self._unfinished, keep, floor=self._floor, limit=None), body.iter_chunks(_BLOCK))

    def _evict(self) -> None:
        """Delete the least recently read files until the cache is within its limit."""
        with self._evicting:
            found = []
            for path in self._cache.glob("??/*"):
                with suppress(FileNotFoundError):  # another process deleted it meanwhile
                    found.append((age(path), path.stat().st_size, path))
            left = sum(size for _, size, _ in found)
            for seconds, size, path in sorted(found, reverse=True):
                if left <= self._cache_bytes or seconds < _IN_USE:
                    return
                path.unlink(missing_ok=True)
                left -= size

    def _age(self, *keys: str) -> float:
        """Seconds since the youngest of these objects was written, by the server's clock; infinite if there is none."""
        ages = [float("inf")]
        for key in keys:
            with suppress(FileNotFoundError), self._reached():
                head = self._client.head_object(Bucket=self._bucket, Key=key)
                now = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
                ages.append(max((now - head["LastModified"]).total_seconds(), 0.0))
        return min(ages)

    def _listed(self, folder: str) -> Iterator[tuple[str, float]]:
        """The keys below it, with the seconds since they were written."""
        with self._reached():
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + folder
            ):
                now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
                for each in page.get("Contents", []):
                    yield each["Key"], (now - each["LastModified"]).total_seconds()

    def _copy(self, key: str, to: str) -> None:
        with self._reached():  # in parts if the file exceeds S3's limit for one copy
            self._client.copy({"Bucket": self._bucket, "Key": key}, self._bucket, to)

    def _delete(self, key: str) -> None:
        with self._reached():
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def _key(self, sha256: str) -> str:
        return self._prefix + place_of(sha256)

    def _marker(self, sha256: str) -> str:
        place_of(sha256)
        return f"{self._prefix}touched/{sha256}"

    @contextmanager
    def _reached(self, *, checks: bool = False) -> Iterator[None]:
        """Raises FileNotFoundError for a missing object, and FilesUnreachableError for all other errors.

        After a timeout, further requests fail at once for a while, instead of each waiting as long. Then one request
        tries, and the others go on failing until it was answered. `checks` is for requests that always try, with a
        time limit too short to tell that others would fail.
        """
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError

        now = time.monotonic()
        if self._silent_until and not checks:
            if now < self._silent_until:
                raise self._unreachable("it did not answer a moment ago")
            self._silent_until = now + _PAUSE
        try:
            yield
        except ClientError as error:
            self._silent_until = 0.0
            if error.response.get("Error", {}).get("Code") in _ABSENT:
                raise FileNotFoundError(str(error)) from None
            raise self._unreachable(error) from error
        except (ConnectTimeoutError, ReadTimeoutError) as error:
            if not checks:
                self._silent_until = time.monotonic() + _PAUSE
            raise self._unreachable(error) from error
        except (BotoCoreError, Boto3Error) as error:
            raise self._unreachable(error) from error
        else:
            self._silent_until = 0.0

    def _unreachable(self, error: object) -> FilesUnreachableError:
        return FilesUnreachableError(f"The file store s3://{self._bucket} cannot be used at the moment: {error}")


def _connected(*, connecting: float, silence: float, attempts: int) -> "S3Client":
    """A client for all threads; it connects later."""
    try:
        import boto3  # an optional dependency, not needed with a folder
        from botocore.config import Config
    except ImportError:
        raise OptionError("Files in s3:// need boto3: pip install 'onnx-bisect[s3]'.") from None
    patience = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=connecting,
        read_timeout=silence,
    )
    return boto3.client("s3", config=patience)
