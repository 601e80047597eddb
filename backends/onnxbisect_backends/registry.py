"""Finds backends: those installed under the entry-point group `onnx_bisect.backends`, and TOML files by path."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect_backends.contract import Backend, BackendFactory
from onnxbisect_backends.options import unknown
from onnxbisect_backends.toml_backend import TomlBackend

_GROUP = "onnx_bisect.backends"


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
    return {point.name: _load(point) for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name)}


def make(name: str, options: dict[str, str]) -> Backend:
    """The backend of that name, or of that TOML file, with its options.

    Raises OptionError for an unknown name or a wrong option, BackendUnusableError for a plugin that does not load.
    """
    if name.endswith(".toml"):
        return TomlBackend(Path(name), options)
    points = {point.name: point for point in entry_points(group=_GROUP)}
    if name not in points:
        raise OptionError(
            f"{unknown('backend', name, points)} A compiler of your own is a TOML file, or a command after '--'."
        )
    backend = _load(points[name])
    if isinstance(backend, BrokenBackend):
        raise BackendUnusableError(f"The backend '{name}' cannot be loaded: {backend.reason}")
    return backend.factory(options)


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
