"""Prepares a model process before it reads its model."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar
from uuid import uuid4

from onnxbisect.errors import ModelError, OnnxBisectError
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend
from onnxbisect_worker.model_requests.protocol import Setup

_LOCK = "lock"


def hold(folder: Path, *, shared: bool = False) -> int:
    """Create the folder if needed and lock it, alone or shared; waits. Closing the returned descriptor unlocks it."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except (FileExistsError, FileNotFoundError):  # removed just now, unless it is a file
            if folder.is_file():
                raise
            continue
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if _is_lock_of(descriptor, folder):
            return descriptor
        os.close(descriptor)


@contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """The folder, locked within the context and removed after it."""
    descriptor = hold(folder)
    try:
        yield folder
    finally:
        remove_held(folder)
        os.close(descriptor)


def remove(folder: Path) -> bool:
    """Remove the folder unless it is locked. True if it is gone."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return not folder.exists()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_lock_of(descriptor, folder):
            remove_held(folder)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return not folder.exists()


def remove_held(folder: Path) -> None:
    """Remove a folder that the caller has locked alone."""
    # Renamed first, so that no process that waits for the lock, or creates the folder, sees half of it.
    gone = folder.with_name(f"{folder.name[:64]}-{uuid4().hex}")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _is_lock_of(descriptor: int, folder: Path) -> bool:
    """Whether this lock belongs to the folder that exists now."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / _LOCK).stat())
    except FileNotFoundError:
        return False


MODEL_NAME = "model.onnx"


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A model that stays in the cache until the lock is closed or the process ends."""

    path: Path
    lock: int


class ModelCache:
    """The folders of one worker, shared by its processes; about `limit` bytes, most recently used ones.

    A model in use is never removed, and a model of any size is assembled: the limit applies to what is kept.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    def assembled(self, sha256: str, model: Path, files: Mapping[str, Path]) -> Assembled:
        """The model's path in a folder that has each location of its data as a file; copied on first use.

        Raises ModelError for an invalid location.
        """
        for location in files:
            demand_location(location)
        digests = {location: path.parent.name + path.name for location, path in files.items()}
        name = hashlib.sha256(json.dumps([sha256, digests], sort_keys=True).encode()).hexdigest()
        folder = self._folder / name
        whole = folder / "whole"
        while True:
            lock = hold(folder, shared=True)
            if whole.is_dir():
                os.utime(folder)
                return Assembled(path=whole / MODEL_NAME, lock=lock)
            os.close(lock)
            # With an exclusive lock: one process copies, the others wait and find the copy.
            lock = hold(folder)
            try:
                if not whole.is_dir():
                    self._make_room(sum(path.stat().st_size for path in [model, *files.values()]))
                    _copy(model, files, folder / "unfinished", whole)
            finally:
                os.close(lock)

    def _make_room(self, size: int) -> None:
        """Remove the least recently used, unused folders as far as needed."""
        kept = []
        for folder in self._folder.iterdir():
            try:
                size_of_folder = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                kept.append((folder.stat().st_mtime, size_of_folder, folder))
            except FileNotFoundError:  # another process removes it
                continue
        surplus = sum(held for _, held, _ in kept) + size - self._limit
        for _, held, folder in sorted(kept):
            if surplus <= 0:
                return
            if held and remove(folder):
                surplus -= held


def demand_location(location: str) -> None:
    """ModelError unless this is a path to a file below the model's folder."""
    path = PurePosixPath(location)
    inside = path.name and not path.is_absolute() and ".." not in path.parts
    if not inside or "\\" in location or not location.isprintable() or str(path) == MODEL_NAME:
        raise ModelError(
            f"A data file cannot lie at {location!r}: give it a name below the model's folder, without '..'."
        )


def _copy(model: Path, files: Mapping[str, Path], aside: Path, whole: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)  # left by a killed process
    try:
        for location, source in {MODEL_NAME: model, **files}.items():
            place = aside / location
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
    except (OSError, ValueError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise OnnxBisectError(f"The model cannot be put into a folder with its data files: {reason}.") from error
    aside.rename(whole)


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PreparedFiles:
    """The model's path and the backend, prepared before the process is confined and reads the model.

    Afterwards it can neither write to the models that workers share, nor be tricked about the backend's files. If one
    failed, its error is raised by `demanded` at the first use: many requests need no backend.
    """

    model: Path | OnnxBisectError
    backend: Backend | Exception
    #: Whether its compiles work under isolation, according to the backend.
    isolated: bool

    @classmethod
    def of(cls, setup: Setup, folder: Path) -> "PreparedFiles":
        """Put the model into `folder`, or among those with external data, and create the backend."""
        case, isolated = setup.case, False
        source = setup.paths[case.onnx]
        model: Path | OnnxBisectError
        if case.files:
            cache = ModelCache(setup.cache, setup.cache_bytes)
            try:  # locked while this process lives
                model = cache.assembled(case.onnx, source, setup.paths_of(case.files)).path
            except OnnxBisectError as error:
                model = error
        else:  # in a folder of its own: in the file store, its data could refer to another tenant's file
            model = folder / "model" / MODEL_NAME
            model.parent.mkdir()
            model.symlink_to(source)
        try:
            found = registry.find(case.backend)
            isolated = found.isolated
            return cls(model=model, backend=found.factory(dict(case.options)), isolated=isolated)
        except Exception as error:  # whatever a third party's backend raises
            return cls(model=model, backend=error, isolated=isolated)


def demanded(it: T | Exception) -> T:
    """What was laid out; raises the error that is there instead."""
    if isinstance(it, Exception):
        raise it
    return it
