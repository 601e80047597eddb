"""What a process that reads a model has ready before it is confined, and has read nothing of the model.

Afterwards it can neither write to the models that workers share, nor be told that the backend's own files exist.
"""

from dataclasses import dataclass
from pathlib import Path

from onnxbisect.errors import OnnxBisectError
from onnxbisect_backends import registry
from onnxbisect_backends.contract import Backend
from onnxbisect_worker.model_processes.messages import Setup
from onnxbisect_worker.model_processes.model_cache import MODEL_NAME, ModelCache


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The model's path and the backend. What failed is the error, for whoever asks for it first: many requests need no
    backend.
    """

    model: Path | OnnxBisectError
    backend: Backend | Exception
    #: Whether its compiles bear isolation, as the backend says itself.
    isolated: bool

    @classmethod
    def of(cls, setup: Setup, folder: Path) -> "Layout":
        """Lay the model out in `folder`, or among those with external data, and make the backend."""
        model, isolated = _laid_out(setup, folder), False
        try:
            found = registry.find(setup.backend)
            isolated = found.isolated
            return cls(model=model, backend=found.factory(dict(setup.options)), isolated=isolated)
        except Exception as error:  # whatever a third party's backend raises
            return cls(model=model, backend=error, isolated=isolated)


def _laid_out(setup: Setup, folder: Path) -> Path | OnnxBisectError:
    if setup.files:
        cache = ModelCache(Path(setup.cache), setup.cache_bytes)
        files = {location: Path(path) for location, path in setup.files.items()}
        try:
            return cache.assembled(setup.onnx, Path(setup.model), files).path  # held while this process lives
        except OnnxBisectError as error:
            return error
    # In a folder of its own: in the file store its data could be said to lie in a stranger's file.
    path = folder / "model" / MODEL_NAME
    path.parent.mkdir()
    path.symlink_to(setup.model)
    return path
