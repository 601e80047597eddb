"""Content-addressed files, the same in a folder and in an S3 bucket; what only a disk can do wrong stands below."""

import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from onnxbisect.errors import OptionError
from onnxbisect_db import files
from onnxbisect_db import files as module
from onnxbisect_db import s3_files as s3_module
from onnxbisect_db.errors import DamagedFileError, DiskFullError, FilesUnreachableError, TooLargeError
from onnxbisect_db.files import Files, FileStore
from onnxbisect_db.s3_files import S3Files
from support.db.s3_server import BUCKET, S3Server
from support.db.s3_server import running as s3_server_running

SHA256 = hashlib.sha256(b"onnx").hexdigest()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with s3_server_running() as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Files:
    """A prefix of the test's own; another call with the same URL would be another host."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return S3Files(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "host", floor=0)


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    if request.param == "disk":
        return Files(tmp_path / "files", floor=0)
    s3_files: S3Files = request.getfixturevalue("bucket")
    return s3_files


@pytest.fixture
def disk(tmp_path: Path) -> Files:
    return Files(tmp_path / "files", floor=0)


def left_over(disk: Files) -> list[Path]:
    return [path for path in disk._folder.rglob("*") if path.is_file()]


def test_what_is_stored_is_found_by_what_is_in_it(store: FileStore) -> None:
    stored = store.put([b"on", b"", b"nx"])
    assert (stored.sha256, stored.size) == (SHA256, 4)
    with store.open(SHA256) as file:
        assert file.read() == b"onnx"
    assert store.size(SHA256) == 4
    assert list(store.names()) == [SHA256]


def test_the_same_bytes_are_one_file(store: FileStore) -> None:
    store.put([b"onnx"])
    store.put([b"o", b"nnx"])
    assert list(store.names()) == [SHA256]


def test_what_is_not_there_is_said_to_be_missing(store: FileStore) -> None:
    assert store.size(SHA256) is None
    assert not store.touch(SHA256)
    assert store.discard(SHA256, older_than=0)
    with pytest.raises(FileNotFoundError):
        store.open(SHA256)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "", SHA256.upper(), SHA256 + "\n", "a/" + SHA256[2:], SHA256[:63]]
)
def test_names_come_from_hashes_only(store: FileStore, name: str) -> None:
    for use in (store.open, store.size, store.touch, lambda sha256: store.discard(sha256, older_than=0)):
        with pytest.raises(ValueError, match="no SHA-256"):
            use(name)


def test_a_file_over_the_limit_is_refused_as_soon_as_that_is_known(store: FileStore) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"12345"

    with pytest.raises(TooLargeError, match="larger than 12 bytes"):
        store.put(endless(), limit=12)
    assert list(store.names()) == []
    assert store.put([b"123456789012"], limit=12).size == 12


def test_what_is_young_is_not_discarded(store: FileStore) -> None:
    store.put([b"onnx"])
    assert not store.discard(SHA256, older_than=60)
    assert store.size(SHA256) == 4
    assert store.discard(SHA256, older_than=0)
    assert store.size(SHA256) is None


def test_what_others_have_put_beside_the_files_is_none(disk: Files, bucket: S3Files, tmp_path: Path) -> None:
    """Nor does it end the sweep of what nobody needs."""
    foreign = f"{SHA256[:2]}/.nfs0001", f"en/{SHA256[2:]}", f"{SHA256[:2]}/{SHA256[:2]}/{SHA256[2:]}"
    for store in (disk, bucket):
        store.put([b"onnx"])
    for place in foreign:
        path = disk._folder / place
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"theirs")
        bucket._client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/{place}", Body=b"theirs")
    assert [list(store.names()) for store in (disk, bucket)] == [[SHA256]] * 2


def test_nothing_is_left_of_what_went_wrong(disk: Files) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        disk.put(broken())
    with pytest.raises(TooLargeError):
        disk.put([b"12345"], limit=1)
    assert left_over(disk) == []


def test_the_last_of_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Files(tmp_path, floor=1000)
    left = [3000]

    def usage(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=left[0])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(files, "_LOOK_EVERY", 100)
    assert disk.put([b"x" * 500]).size == 500

    def filling() -> Iterator[bytes]:
        for _ in range(100):
            left[0] -= 200
            yield b"y" * 200

    with pytest.raises(DiskFullError, match="1,000 are kept free"):
        disk.put(filling())
    assert len(left_over(disk)) == 1


def test_a_file_that_is_touched_while_it_is_discarded_stays(disk: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.put([b"onnx"])
    os.utime(disk.path(SHA256), (1, 1))
    ages = iter([module.age])

    def touched_right_after(path: Path) -> float:
        measure = next(ages, None)
        if measure is None:
            return time.time() - path.stat().st_mtime
        age = measure(path)
        disk.touch(SHA256)
        return age

    monkeypatch.setattr(module, "age", touched_right_after)
    assert not disk.discard(SHA256, older_than=60)
    assert disk.size(SHA256) == 4


def test_an_upload_that_comes_again_makes_the_file_young(disk: Files) -> None:
    disk.put([b"onnx"])
    os.utime(disk.path(SHA256), (1, 1))
    disk.put([b"onnx"])
    assert not disk.discard(SHA256, older_than=60)


def test_leavings_of_killed_processes_are_cleared(disk: Files) -> None:
    dead, alive = disk._unfinished / "dead", disk._unfinished / "alive"
    dead.write_bytes(b"x")
    alive.write_bytes(b"x")
    os.utime(dead, (time.time() - 7200,) * 2)
    disk.clear_unfinished(older_than=3600)
    assert left_over(disk) == [alive]
    assert list(disk.names()) == []


def test_a_file_that_comes_in_pieces_is_there_when_it_is_finished(disk: Files) -> None:
    coming = disk.begin(limit=4)
    coming.write(b"on")
    coming.write(b"nx")
    assert coming.seal().sha256 == SHA256
    assert disk.size(SHA256) is None
    assert coming.finish().size == 4
    coming.abandon()
    assert disk.size(SHA256) == 4
    assert len(left_over(disk)) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_file_that_is_abandoned_leaves_nothing(disk: Files, sealed: bool) -> None:
    coming = disk.begin()
    coming.write(b"onnx")
    if sealed:
        coming.seal()
    coming.abandon()
    assert left_over(disk) == []


class _Late(ThreadPoolExecutor):
    """Threads that never have time at once."""

    def submit(self, function, /, *arguments, **named):  # type: ignore[no-untyped-def]
        def late() -> object:
            time.sleep(0.05)
            return function(*arguments, **named)

        return super().submit(late)


def test_a_digest_beside_the_writing_is_that_of_what_was_written(disk: Files) -> None:
    """Chunks come in memory that is used again, as `Unfinished.write` allows, and more than the disk takes at once."""
    memory = [bytearray(3 << 20) for _ in range(3)]
    whole = b""
    with _Late() as beside:
        file = disk.begin(beside=beside)
        for number, size in enumerate([3 << 20, 5, 1 << 20, 3 << 20, 1 << 16, 3 << 20, 70_001]):
            chunk = memoryview(memory[number % 3])[:size]
            chunk[:] = os.urandom(size)
            whole += chunk
            file.write(chunk)
        stored = file.finish()
    assert (stored.sha256, stored.size) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert disk.path(stored.sha256).read_bytes() == whole


def other_host(bucket: S3Files, tmp_path: Path, **limits: int) -> S3Files:
    return S3Files(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "other host", floor=0, **limits)


def test_hosts_share_a_bucket_and_no_disk(bucket: S3Files, tmp_path: Path) -> None:
    bucket.put([b"on", b"nx"])
    other = other_host(bucket, tmp_path)
    path = other.path(SHA256)
    assert path.read_bytes() == b"onnx"
    assert tmp_path / "other host" in path.parents
    assert bucket.discard(SHA256, older_than=0)
    assert other.size(SHA256) is None


def test_a_file_larger_than_a_part_of_an_upload_comes_back_whole(bucket: S3Files, tmp_path: Path) -> None:
    block = os.urandom(1 << 20)
    stored = bucket.put([block] * 20)
    with other_host(bucket, tmp_path).open(stored.sha256) as file:
        assert hashlib.sha256(file.read()).hexdigest() == stored.sha256


def test_other_bytes_than_those_of_the_name_are_not_given_out(
    bucket: S3Files, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is there, so nothing waits for it; and once it was put right, the file is read again."""
    bucket.put([b"onnx"])
    other_file = bucket.put([b"another"]).sha256
    [place] = (s3_server.folder / "data" / BUCKET / tmp_path.name).rglob(SHA256[2:])
    place.write_bytes(b"evil")
    other = other_host(bucket, tmp_path)
    for _ in range(2):
        with pytest.raises(DamagedFileError, match=rf"other bytes .* Delete {tmp_path.name}/{SHA256[:2]}/{SHA256[2:]}"):
            other.path(SHA256)
    assert other.path(other_file).read_bytes() == b"another"
    monkeypatch.setattr(s3_module, "_DAMAGED_SECONDS", 0.0)
    bucket._client.delete_object(Bucket=BUCKET, Key=f"{tmp_path.name}/{SHA256[:2]}/{SHA256[2:]}")
    bucket.put([b"onnx"])
    assert other_host(bucket, tmp_path).path(SHA256).read_bytes() == b"onnx"


def test_the_cache_keeps_what_was_read_last(bucket: S3Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "_IN_USE", 0.0)
    first, second, third = (bucket.put([name * 400]).sha256 for name in (b"a", b"b", b"c"))
    other = other_host(bucket, tmp_path, cache=1000)
    paths = [other.path(first), other.path(second)]
    for path, seconds in zip(paths, (100, 200), strict=True):
        os.utime(path, (time.time() - seconds,) * 2)
    last = other.path(third)
    assert [path.exists() for path in (*paths, last)] == [True, False, True]
    assert other.path(second).read_bytes() == b"b" * 400


def test_a_file_that_another_process_drops_from_the_cache_hides_no_other(
    bucket: S3Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (bucket.put([name]).sha256 for name in (b"a", b"b"))
    other = other_host(bucket, tmp_path)
    dropped = other.path(first)

    def dropped_meanwhile(path: Path) -> float:
        dropped.unlink(missing_ok=True)
        return module.age(path)

    monkeypatch.setattr(s3_module, "age", dropped_meanwhile)
    assert other.path(second).read_bytes() == b"b"


def test_a_file_that_is_touched_while_its_bucket_discards_it_stays(
    bucket: S3Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`touch` says that the file is there, or it is gone: never both."""
    bucket.put([b"onnx"])
    copy = S3Files._copy
    touched: list[bool] = []

    def touched_meanwhile(files: S3Files, key: str, to: str) -> None:
        copy(files, key, to)
        if not touched:
            touched.append(files.touch(SHA256))

    monkeypatch.setattr(S3Files, "_copy", touched_meanwhile)
    monkeypatch.setattr(S3Files, "_age", lambda files, *keys: 0.0 if touched else 61.0)
    assert not bucket.discard(SHA256, older_than=60)
    assert touched == [True]
    assert bucket.size(SHA256) == 4


def test_a_store_that_is_away_is_no_missing_file(
    bucket: S3Files, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put([b"onnx"])
    bucket.check()
    s3_server.stop()
    try:
        for use in (bucket.open, bucket.size, bucket.touch):
            with pytest.raises(FilesUnreachableError, match=f"s3://{BUCKET} cannot be used at the moment"):
                use(SHA256)
        with pytest.raises(FilesUnreachableError):
            bucket.check()
    finally:
        s3_server.start()
    assert bucket.size(SHA256) == 4


def test_a_store_that_does_not_answer_is_not_asked_by_everybody(
    s3_server: S3Server, bucket: S3Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to ask wait in vain, the next do not wait; once it answers somebody, it is asked by all."""
    monkeypatch.setattr(s3_module, "_SILENCE", 0.4)
    monkeypatch.setattr(s3_module, "_CHECKING", 0.4)
    monkeypatch.setattr(s3_module, "_ATTEMPTS", 1)
    files = other_host(bucket, tmp_path)
    files.put([b"onnx"])
    assert s3_server.process is not None

    def seconds() -> float:
        began = time.monotonic()
        with pytest.raises(FilesUnreachableError):
            files.size(SHA256)
        return time.monotonic() - began

    s3_server.process.send_signal(signal.SIGSTOP)
    os.waitpid(s3_server.process.pid, os.WUNTRACED)  # it may answer one more request until all its threads are stopped
    try:
        with pytest.raises(FilesUnreachableError):
            files.check()
        assert seconds() >= 0.4, "a check has less time, and proves nothing to others"
        assert min(seconds() for _ in range(3)) < 0.4
        monkeypatch.setattr(s3_module, "_PAUSE", 0.0)
        files._silent_until = time.monotonic()
        assert seconds() >= 0.4, "after the pause, somebody tries"
        monkeypatch.setattr(s3_module, "_PAUSE", 60.0)
        seconds()
    finally:
        s3_server.process.send_signal(signal.SIGCONT)
    with pytest.raises(FilesUnreachableError, match="did not answer a moment ago"):
        files.size(SHA256)
    files.check()
    assert files.size(SHA256) == 4


def test_a_bucket_that_does_not_exist_is_said(bucket: S3Files, tmp_path: Path) -> None:
    with pytest.raises(FilesUnreachableError, match="no bucket elsewhere"):
        S3Files("s3://elsewhere", tmp_path / "host").check()


def test_a_missing_client_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(OptionError, match=r"pip install 'onnx-bisect\[s3\]'"):
        S3Files(f"s3://{BUCKET}", tmp_path)
