"""Finds backends: under the entry-point group `onnx_bisect.backends`, in `compilers/*.toml`, and TOML files by path."""

from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.contract import Backend, BackendFactory
from onnxbisect_backends.options import unknown
from onnxbisect_backends.toml_backend import TomlBackend
from onnxbisect_backends.toml_file import load_definition

_GROUP = "onnx_bisect.backends"

#: The distribution that this package comes with.
_OURS = "onnx-bisect"

#: TOML files that come with this package; each file has the name of its backend.
_COMPILERS = Path(__file__).with_name("compilers")


@dataclass(frozen=True, kw_only=True)
class LoadedBackend:
    """A backend that can be made. `summary` is the first line of its docstring, `origin` the package it came with."""

    name: str
    factory: BackendFactory
    summary: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class BrokenBackend:
    """A backend that is installed and cannot be loaded; `reason` is a sentence."""

    name: str
    reason: str
    origin: str


def available() -> dict[str, LoadedBackend | BrokenBackend]:
    """All installed backends by name. One that fails to load is listed with the reason; it never stops the others."""
    found = {name: _load_file(name, path) for name, path in _files().items()}
    found |= {name: _load(point) for name, point in _points().items()}
    return dict(sorted(found.items()))


def make(name: str, options: dict[str, str]) -> Backend:
    """The backend of that name, or of that TOML file, with its options.

    Raises OptionError for an unknown name or a wrong option, BackendUnusableError for a plugin that does not load.
    """
    if name.endswith(".toml"):
        return TomlBackend(Path(name), options)
    points, files = _points(), _files()
    if name in points:
        backend = _load(points[name])
        if isinstance(backend, BrokenBackend):
            raise BackendUnusableError(f"The backend '{name}' cannot be loaded: {backend.reason}")
        return backend.factory(options)
    if name in files:
        return TomlBackend(files[name], options)
    raise OptionError(
        f"{unknown('backend', name, {*points, *files})} A compiler of your own is a TOML file, or a command after '--'."
    )


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def _files() -> dict[str, Path]:
    return {path.stem: path for path in _COMPILERS.glob("*.toml")}


def _load_file(name: str, path: Path) -> LoadedBackend | BrokenBackend:
    try:
        summary = load_definition(path).summary
    except OptionError as error:
        return BrokenBackend(name=name, reason=str(error), origin=_OURS)
    return LoadedBackend(name=name, factory=partial(TomlBackend, path), summary=summary, origin=_OURS)


def _load(point: EntryPoint) -> LoadedBackend | BrokenBackend:
    origin = point.dist.name if point.dist else ""
    try:
        factory = point.load()
    except Exception as error:  # whatever a third party's module raises while it is imported
        return BrokenBackend(name=point.name, reason=f"{type(error).__name__}: {error}", origin=origin)
    if not callable(factory):
        return BrokenBackend(name=point.name, reason=f"{point.value} is not a backend factory.", origin=origin)
    summary = (factory.__doc__ or "").strip().partition("\n")[0]
    return LoadedBackend(name=point.name, factory=factory, summary=summary, origin=origin)
