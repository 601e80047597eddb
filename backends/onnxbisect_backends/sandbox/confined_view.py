"""Which files of this machine a confined process sees: a compiler, or the process that reads a model.

`confine.py` arranges it in that process; this module selects the folders.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxbisect_backends.contract import Confinement
from onnxbisect_backends.folders import cache_folder

#: Folders of users, and sockets of services that run here: docker, databases, agents.
_HIDDEN = ("/home", "/root", "/run", "/mnt", "/media", "/srv")
#: A folder in a home with programs, beside private data.
_LOCAL = ".local/share"
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - each compile gets empty ones
#: Variables with lists of folders of programs and libraries.
_PATHS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def confined_view(
    confinement: Confinement, programs: Sequence[str], *, cwd: Path, env: Mapping[str, str], reads: Sequence[Path]
) -> dict[str, Any]:
    """The argument of `confine.arrange`.

    Visible are `reads`, `cwd` and the probe's folder, the installations of `programs`, the paths of programs and
    libraries in `env`, this Python, and the toolchains. None of this comes from a model or its sender. A folder that
    contains a hidden one is not shown, such as a home directory on PATH.
    """
    workdir = (confinement.workdir or cwd).absolute()
    temporary = {*_TEMPORARY, tempfile.gettempdir()} - {str(workdir)}
    hidden = [*_HIDDEN, *_homes(), *(str(folder.absolute()) for folder in confinement.hidden)]
    probe = [] if confinement.probe is None else [confinement.probe.parent]
    ours = (Path(__file__).parents[1], cache_folder() / "toolchains", Path(sys.prefix), Path(sys.base_prefix))
    shown = {
        *(str(path.absolute()) for path in (cwd, *probe, *reads, *listed(env), *ours)),
        *(str(path) for program in programs for path in _installed(Path(program))),
    }
    kept = {os.path.realpath(path) for path in (*hidden, *temporary)}
    found = {path: os.path.realpath(path) for path in shown}
    allowed = {path for path, real in found.items() if not any(Path(each).is_relative_to(real) for each in kept)}
    targets = {found[path] for path in allowed}
    return {
        "own": str(workdir),
        "hidden": sorted(set(hidden) - temporary),
        "temporary": sorted(temporary),
        # targets of links come first, so that visible links work
        "shown": [*sorted(targets), *sorted(allowed - targets)],
    }


def listed(env: Mapping[str, str]) -> list[Path]:
    """The folders in the environment's paths of programs and libraries."""
    entries = [entry for name in _PATHS for entry in env.get(name, "").split(os.pathsep)]
    return [Path(entry) for entry in entries if entry.startswith("/")]


def _homes() -> Iterator[str]:
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        return
    yield str(home)
    yield str(home / _LOCAL)


def _installed(program: Path) -> Iterator[Path]:
    """The program and the targets of its symbolic links step by step, after the folders that each is installed in."""
    while True:
        if program.parent.name in ("bin", "sbin"):
            yield program.parent.parent
        yield program.parent
        yield program
        if not program.is_symlink():
            return
        program = program.parent / program.readlink()
