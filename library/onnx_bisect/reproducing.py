"""The report's field `reproduce`: the paths that its commands need to call a compiler that is not installed."""

import os
from pathlib import Path

from onnxbisect.report.contents import Reproduce
from onnxbisect_backends import registry
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend


def started_from(backend: Backend) -> Reproduce | None:
    """The field `reproduce`, with absolute paths; None for an installed backend."""
    if isinstance(backend, CommandBackend):
        return {"folder": str(backend.folder)}
    if isinstance(backend, TomlBackend) and not registry.is_shipped(backend.file):
        return {"backend": str(backend.file)}
    return None


def seen_from(place: Reproduce, out: Path) -> Reproduce:
    """The field with paths relative to the report's folder `out`."""
    out = out.absolute()
    if "folder" in place:
        return {"folder": _relative(Path(place["folder"]), out), "report": _relative(out, Path(place["folder"]))}
    return {"backend": _relative(Path(place["backend"]), out)}


def _relative(path: Path, start: Path) -> str:
    """The path relative to `start`; absolute if there is none, as between drives."""
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:
        return path.as_posix()
