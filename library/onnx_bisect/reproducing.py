"""Where a compiler of the user's own was started, so that the commands of a report run from the report's folder."""

import os
from pathlib import Path

from onnxbisect.report.contents import Reproduce
from onnxbisect_backends import registry
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend


def started_from(backend: Backend) -> Reproduce | None:
    """The field `reproduce` of a report, with absolute paths; None for a backend that is installed."""
    if isinstance(backend, CommandBackend):
        return {"folder": str(backend.folder)}
    if isinstance(backend, TomlBackend) and not registry.is_shipped(backend.file):
        return {"backend": str(backend.file)}
    return None


def seen_from(place: Reproduce, out: Path) -> Reproduce:
    """The same field as it is for a report in the folder `out`."""
    out = out.absolute()
    if "folder" in place:
        return {"folder": _relative(Path(place["folder"]), out), "report": _relative(out, Path(place["folder"]))}
    return {"backend": _relative(Path(place["backend"]), out)}


def _relative(path: Path, start: Path) -> str:
    """Absolute still where no relative path leads there, as between drives."""
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:
        return path.as_posix()
