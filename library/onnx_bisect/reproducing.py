"""Where a compiler of the user's own was started, so that the commands of a report run from the report's folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxbisect_backends import registry
from onnxbisect_backends.commands.any_command import CommandBackend
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend


def started_from(backend: Backend) -> dict[str, Any]:
    """The field `reproduce` of a report, with absolute paths; nothing for a backend that is installed."""
    if isinstance(backend, CommandBackend):
        return {"reproduce": {"folder": str(backend.folder)}}
    if isinstance(backend, TomlBackend) and not registry.is_shipped(backend.file):
        return {"reproduce": {"backend": str(backend.file)}}
    return {}


def seen_from(report: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The same field as it is for a report in the folder `out`."""
    place = report.get("reproduce")
    if place is None:
        return {}
    out = out.absolute()
    found = {what: _relative(Path(path), out) for what, path in place.items() if what != "report"}
    if "folder" in place:
        found["report"] = _relative(out, Path(place["folder"]))
    return {"reproduce": found}


def _relative(path: Path, start: Path) -> str:
    """Absolute still where no relative path leads there, as between drives."""
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:
        return path.as_posix()
