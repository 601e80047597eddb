"""Models with external data, put together in folders: stored files have other names, and onnx follows no links."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onnxbisect.errors import ModelError, OnnxBisectError
from onnxbisect_worker.held_folders import hold, remove

MODEL_NAME = "model.onnx"


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A model that stays where it is until it is let go of, or the process that holds it ends."""

    path: Path
    lock: int

    def let_go(self) -> None:
        """It may be removed now."""
        os.close(self.lock)


class ModelCache:
    """The folders of one worker, whichever of its processes made them; about `limit` bytes, the latest used ones.

    What is in use is never removed, and a model is put together however large it is: the limit is on what is kept.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    def assembled(self, sha256: str, model: Path, files: Mapping[str, Path]) -> Assembled:
        """The model's path in a folder in which each location of its data is a file; copied there the first time.

        Raises ModelError for a location that is none.
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
            # Alone now: one copies, the others wait here and find it done.
            lock = hold(folder)
            try:
                if not whole.is_dir():
                    self._make_room(sum(path.stat().st_size for path in [model, *files.values()]))
                    _copy(model, files, folder / "unfinished", whole)
            finally:
                os.close(lock)

    def _make_room(self, size: int) -> None:
        """Remove the folders that were not used for the longest time, as far as they are unused and it is needed."""
        kept = sorted((*_state(folder), folder) for folder in self._folder.iterdir())
        surplus = sum(held for _, held, _ in kept) + size - self._limit
        for _, held, folder in kept:
            if surplus <= 0:
                return
            if held and remove(folder):
                surplus -= held


def demand_location(location: str) -> None:
    """ModelError where this is no path to a file below the model's own folder."""
    path = PurePosixPath(location)
    inside = path.name and not path.is_absolute() and ".." not in path.parts
    if not inside or "\\" in location or not location.isprintable() or str(path) == MODEL_NAME:
        raise ModelError(
            f"A data file cannot lie at {location!r}: give it a name below the model's folder, without '..'."
        )


def _copy(model: Path, files: Mapping[str, Path], aside: Path, whole: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
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


def _state(folder: Path) -> tuple[float, int]:
    """When it was used, and its bytes."""
    try:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return folder.stat().st_mtime, size
    except FileNotFoundError:  # somebody removes it
        return 0.0, 0
