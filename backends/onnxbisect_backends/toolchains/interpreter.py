"""Finds a CPython of a given minor version on this machine, for compilers that need it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Patterns for the paths of interpreters that are not on PATH.
_PLACES = (
    "~/.pyenv/versions/{version}.*/bin/python{version}",
    "~/.local/share/uv/python/cpython-{version}.*/bin/python{version}",
    "/opt/python/cp{digits}-cp{digits}/bin/python{version}",
)

_WHO = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


def find_python(version: str) -> Path | None:
    """An interpreter such as `3.10` that can create environments; None if there is none."""
    return next((path for path in _candidates(version) if _is_python(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if "{}.{}".format(*sys.version_info) == version:
        yield Path(getattr(sys, "_base_executable", sys.executable))
    for folder in os.get_exec_path():
        yield Path(folder, f"python{version}")
    for pattern in _PLACES:
        path = Path(pattern.format(version=version, digits=version.replace(".", ""))).expanduser()
        root = Path(path.anchor)
        yield from sorted(root.glob(str(path.relative_to(root))), reverse=True)


def _is_python(path: Path, version: str) -> bool:
    """Whether it has that version and can create environments; pyenv's shims exist and may fail."""
    if not path.is_file():
        return False
    try:
        done = subprocess.run([str(path), "-I", "-c", _WHO], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.decode(errors="replace").strip() == version
