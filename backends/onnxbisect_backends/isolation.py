"""What compilers, and processes that read models, may see of this machine where the models are strangers'.

`confine.py` arranges it in the confined process; this module knows which folders matter, and whether the kernel
lets us at all.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from onnxbisect_backends.cache import cache_folder
from onnxbisect_backends.contract import Confinement, Limits

_CONFINE = Path(__file__).with_name("confine.py")


class Isolation(StrEnum):
    """How far a compile, and the process that reads its model, are kept away from the rest of the machine."""

    #: They are bounded and killed with all that they started, and see what their user sees.
    NONE = "none"
    #: They see their own processes, no network, and of the disk what programs are made of and their work directories.
    NAMESPACES = "namespaces"


#: Where people keep what is theirs, and sockets of whoever runs here: docker, databases, agents.
_HIDDEN = ("/home", "/root", "/run", "/mnt", "/media", "/srv")
#: In a home: programs may be there, beside what is not theirs.
_LOCAL = ".local/share"
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - each compile gets empty ones
#: Lists of folders from which the operator's programs are made up.
_PATHS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
#: Run by a confined Python without packages: whether it can confine a process, too. Arguments: `confine.py`, a view.
_INSIDE = """
import json, os, sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
confine = ModuleType("confine")
SourceFileLoader("confine", sys.argv[1]).exec_module(confine)
status = confine.fork_confined(json.loads(sys.argv[2]), network=False)
os._exit(1 if status else 0)
"""


@cache
def available() -> Isolation:
    """What the kernel lets this process do, found out by doing it: sysctls, AppArmor and seccomp have a say in it, and
    so in Docker it is mostly `none`, unless the container was given more than it needs otherwise.

    A confined process must be able to confine another one: the one that reads a model starts compilers.
    """
    from onnxbisect_backends.process import run  # it needs this module

    if sys.platform != "linux":
        return Isolation.NONE
    with tempfile.TemporaryDirectory() as folder:
        confinement = Confinement(workdir=Path(folder))
        limits = Limits(seconds=30, confinement=confinement)
        seen = view(confinement, [sys.executable], cwd=Path(folder), env={}, reads=())
        argv = [sys.executable, "-I", "-S", "-c", _INSIDE, str(_CONFINE), json.dumps(seen)]
        outcome = run(argv, cwd=Path(folder), env={}, limits=limits)
    return Isolation.NAMESPACES if outcome.exit_code == 0 else Isolation.NONE


def view(
    confinement: Confinement, programs: Sequence[str], *, cwd: Path, env: Mapping[str, str], reads: Sequence[Path]
) -> dict[str, Any]:
    """What `confine.arrange` takes.

    Shown are, besides `reads`, `cwd` and the probe's folder, what `programs` are installed with, the paths of programs
    and libraries in `env`, this Python, and the toolchains. None of this comes from a model or its sender. What
    holds a hidden folder is not shown: a home directory may be on PATH.
    """
    workdir = (confinement.workdir or cwd).absolute()
    temporary = {*_TEMPORARY, tempfile.gettempdir()} - {str(workdir)}
    hidden = [*_HIDDEN, *_homes(), *(str(folder.absolute()) for folder in confinement.hidden)]
    probe = [] if confinement.probe is None else [confinement.probe.parent]
    links = [link for program in programs for link in _links(Path(program))]
    shown = {
        *(str(path.absolute()) for path in (cwd, *probe, *reads, *listed(env), *_ours())),
        *(str(folder) for link in links for folder in _installed(link)),
    }
    kept = {os.path.realpath(path) for path in (*hidden, *temporary)}
    found = {path: os.path.realpath(path) for path in shown}
    allowed = {path for path, real in found.items() if not _holds(real, kept)}
    targets = {found[path] for path in allowed}
    return {
        "own": str(workdir),
        "hidden": sorted(set(hidden) - temporary),
        "temporary": sorted(temporary),
        # what links lead to comes first: a link in sight is then as good as before
        "shown": [*sorted(targets), *sorted(allowed - targets)],
    }


def listed(env: Mapping[str, str]) -> list[Path]:
    """The folders in this environment's paths of programs and libraries."""
    entries = [entry for name in _PATHS for entry in env.get(name, "").split(os.pathsep)]
    return [Path(entry) for entry in entries if entry.startswith("/")]


def _homes() -> Iterator[str]:
    try:
        home = Path.home()
    except RuntimeError:  # a user without one
        return
    yield str(home)
    yield str(home / _LOCAL)


def _ours() -> Iterator[Path]:
    yield Path(__file__).parent
    yield cache_folder() / "toolchains"
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)


def _links(program: Path) -> Iterator[Path]:
    """The program, and what it is a link to, step by step."""
    yield program
    while program.is_symlink():
        program = program.parent / program.readlink()
        yield program


def _installed(program: Path) -> Iterator[Path]:
    """The folder with all that it was installed with, its own folder, itself; the outermost may not be shown."""
    if program.parent.name in ("bin", "sbin"):
        yield program.parent.parent
    yield program.parent
    yield program


def _holds(real: str, kept: set[str]) -> bool:
    return any(each == real or each.startswith(real.rstrip("/") + "/") for each in kept)
