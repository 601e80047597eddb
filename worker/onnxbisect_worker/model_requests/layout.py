"""Prepares a model process before it reads its model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from onnxbisect.errors import OnnxBisectError
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend
from onnxbisect_worker.model_requests.model_cache import MODEL_NAME, ModelCache
from onnxbisect_worker.model_requests.protocol import Setup

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The model's path and the backend, prepared before the process is confined and reads the model.

    Afterwards it can neither write to the models that workers share, nor be tricked about the backend's files. If one
    failed, its error is raised by `demanded` at the first use: many requests need no backend.
    """

    model: Path | OnnxBisectError
    backend: Backend | Exception
    #: Whether its compiles work under isolation, according to the backend.
    isolated: bool

    @classmethod
    def of(cls, setup: Setup, folder: Path) -> "Layout":
        """Put the model into `folder`, or among those with external data, and create the backend."""
        model, isolated = _laid_out(setup, folder), False
        try:
            found = registry.find(setup.case.backend)
            isolated = found.isolated
            return cls(model=model, backend=found.factory(dict(setup.case.options)), isolated=isolated)
        except Exception as error:  # whatever a third party's backend raises
            return cls(model=model, backend=error, isolated=isolated)


def demanded(it: T | Exception) -> T:
    """What was laid out; raises the error that is there instead."""
    if isinstance(it, Exception):
        raise it
    return it


def _laid_out(setup: Setup, folder: Path) -> Path | OnnxBisectError:
    case, model = setup.case, setup.paths[setup.case.onnx]
    if case.files:
        cache = ModelCache(setup.cache, setup.cache_bytes)
        try:
            return cache.assembled(case.onnx, model, setup.paths_of(case.files)).path  # locked while this process lives
        except OnnxBisectError as error:
            return error
    # In a folder of its own: in the file store, its data could refer to another tenant's file.
    path = folder / "model" / MODEL_NAME
    path.parent.mkdir()
    path.symlink_to(model)
    return path
