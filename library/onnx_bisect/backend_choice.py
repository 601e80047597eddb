"""Creates the backend that a caller names or passes, and says how a report's commands call it again."""

from collections.abc import Mapping
from os import PathLike, fspath
from typing import cast

from onnx_bisect.callable_backend import CallableBackend, CompileFunction
from onnxbisect.errors import OptionError
from onnxbisect.report.contents import Reproduce
from onnxbisect_backends import registry
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.options import option_text

#: A backend's name, the path of a TOML file, a backend, or a function that compiles.
BackendChoice = str | PathLike[str] | Backend | CompileFunction


def chosen_backend(backend: BackendChoice, options: Mapping[str, object]) -> Backend:
    """Create the backend, or return a given object. Raises OptionError for an unknown backend or a wrong option."""
    if isinstance(backend, str | PathLike):
        return registry.make(fspath(backend), texts(options))
    if options:
        raise OptionError("options are for a backend by name or file; one of your own, or a function, has its own.")
    if hasattr(backend, "compile") and hasattr(backend, "describe"):
        return cast("Backend", backend)
    if callable(backend):
        return CallableBackend(backend)
    raise OptionError(f"{backend!r} is no backend: give a name, the path of a TOML file, a Backend or a function.")


def texts(options: Mapping[str, object]) -> dict[str, str]:
    """The options as strings, in the form that `--option` takes."""
    return {key: option_text(value) for key, value in options.items()}


def started_from(backend: Backend) -> Reproduce | None:
    """The field `reproduce`, with absolute paths; None for an installed backend."""
    if isinstance(backend, CommandBackend):
        return {"folder": str(backend.folder)}
    if isinstance(backend, TomlBackend) and not registry.is_shipped(backend.file):
        return {"backend": str(backend.file)}
    return None
