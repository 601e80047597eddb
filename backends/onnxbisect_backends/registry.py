"""Finds backends: entry points of the group `onnx_bisect.backends`, `commands/compilers/*.toml`, TOML files by path.

An installation's own TOML files, in the folder that `ONNXBISECT_BACKENDS` names, are found by name as well.
"""

import os
import sys
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from pydantic import BaseModel

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.commands.definition import load_definition
from onnxbisect_backends.commands.toml_backend import TomlBackend
from onnxbisect_backends.contract import Backend, BackendFactory
from onnxbisect_backends.options import OptionHelp, explained, unknown

_GROUP = "onnx_bisect.backends"

#: The distribution that this package comes with.
_OURS = "onnx-bisect"

#: TOML files that come with this package; each file has the name of its backend.
_COMPILERS = Path(__file__).parent / "commands" / "compilers"

#: The variable that names the folder with an installation's own TOML files.
FOLDER = "ONNXBISECT_BACKENDS"


@dataclass(frozen=True, kw_only=True)
class LoadedBackend:
    """A backend that can be created. `origin` is its package.

    `summary` is the first line of its docstring. `options` are those of the factory's pydantic model `Options`, or of
    its `known_options()`; empty if it has neither. `isolated`: all its programs start through `process.run` and work
    under isolation, according to the factory's attribute of that name.
    """

    name: str
    factory: BackendFactory
    summary: str
    origin: str
    options: tuple[OptionHelp, ...] = ()
    isolated: bool = False


@dataclass(frozen=True, kw_only=True)
class BrokenBackend:
    """An installed backend that cannot be loaded; `reason` is a sentence."""

    name: str
    reason: str
    origin: str


def available() -> dict[str, LoadedBackend | BrokenBackend]:
    """All installed backends by name. One that fails to load is listed with the reason and does not stop the others."""
    found = {name: _load_file(name, path) for name, path in _files().items()}
    found |= {name: _load(point) for name, point in _points().items()}
    return dict(sorted(found.items()))


def find(name: str) -> LoadedBackend:
    """The backend of that name, or of that TOML file.

    Raises OptionError for an unknown name or a wrong file, BackendUnusableError for a plugin that does not load.
    """
    if name.endswith(".toml"):
        return _read_file(Path(name))
    points, files = _points(), _files()
    if name in points:
        backend = _load(points[name])
        if isinstance(backend, BrokenBackend):
            raise BackendUnusableError(f"The backend '{name}' cannot be loaded: {backend.reason}")
        return backend
    if name in files:
        return _read_file(files[name])
    raise OptionError(
        f"{unknown('backend', name, {*points, *files})} A compiler of your own is a TOML file, or a command after '--'."
    )


def own_folder() -> Path | None:
    """The folder with the installation's own TOML files; None if the variable is unset or empty."""
    named = os.environ.get(FOLDER)
    return Path(named).absolute() if named else None


def check_own_folder() -> None:
    """OptionError if that folder is none, or one of its files is wrong or takes the name of another backend."""
    folder = own_folder()
    if folder is None:
        return
    if not folder.is_dir():
        raise OptionError(f"{FOLDER} is '{folder}', which is no folder.")
    taken = {*_points(), *(path.stem for path in _COMPILERS.glob("*.toml"))}
    for path in sorted(folder.glob("*.toml")):
        name = load_definition(path).name
        if name != path.stem:
            raise OptionError(f"{path} describes the backend '{name}': call the file {name}.toml.")
        if name in taken:
            raise OptionError(f"{path}: there is a backend '{name}' already: give yours another name.")


def is_shipped(path: Path) -> bool:
    """Whether a TOML file comes with this package, so that its backend is found by name."""
    return path.parent == _COMPILERS


def inherited_by(name: str) -> tuple[str, ...]:
    """Environment variables that a backend's TOML file passes to its compiler; plugins are not loaded and pass none.

    Raises OptionError for a wrong file.
    """
    if name in _points():  # entry points precede files, as in `find`
        return ()
    path = Path(name) if name.endswith(".toml") else _files().get(name)
    return () if path is None else load_definition(path).inherit_env


def make(name: str, options: dict[str, str]) -> Backend:
    """`find(name)` with options; also raises OptionError for wrong options."""
    return find(name).factory(options)


def _points() -> dict[str, EntryPoint]:
    return _points_on(tuple(sys.path))


@cache
def _points_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Cached, because it opens a file of every installed distribution."""
    return {point.name: point for point in entry_points(group=_GROUP)}


def _files() -> dict[str, Path]:
    own = own_folder()
    found = [] if own is None else sorted(own.glob("*.toml"))
    return {path.stem: path for path in (*found, *_COMPILERS.glob("*.toml"))}


def _load_file(name: str, path: Path) -> LoadedBackend | BrokenBackend:
    try:
        return _read_file(path)
    except OptionError as error:
        return BrokenBackend(name=name, reason=str(error), origin=_OURS if is_shipped(path) else str(path))


def _read_file(path: Path) -> LoadedBackend:
    definition = load_definition(path)
    return LoadedBackend(
        name=definition.name,
        factory=partial(TomlBackend, path),
        summary=definition.summary,
        origin=_OURS if is_shipped(path) else str(path),
        options=definition.explained(),
        isolated=definition.isolated,
    )


def _load(point: EntryPoint) -> LoadedBackend | BrokenBackend:
    origin = point.dist.name if point.dist else ""
    try:
        factory = point.load()
    except Exception as error:  # a third party's module may raise anything
        return BrokenBackend(name=point.name, reason=f"{type(error).__name__}: {error}", origin=origin)
    if not callable(factory):
        return BrokenBackend(name=point.name, reason=f"{point.value} is not a backend factory.", origin=origin)
    summary = (factory.__doc__ or "").strip().partition("\n")[0]
    try:
        if known := getattr(factory, "known_options", None):
            options = tuple(known())
        else:
            model = getattr(factory, "Options", None)
            options = explained(model) if isinstance(model, type) and issubclass(model, BaseModel) else ()
    except Exception as error:  # as above
        return BrokenBackend(name=point.name, reason=f"{type(error).__name__}: {error}", origin=origin)
    return LoadedBackend(
        name=point.name,
        factory=factory,
        summary=summary,
        origin=origin,
        options=options,
        isolated=getattr(factory, "isolated", False) is True,
    )
