"""Versions of compilers on the package index, in addition to shipped ones.

A version is resolved by pip once: its exact pins are written as a definition, like shipped ones, into the folder of the
environments. From then on it is a toolchain like any other.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.report.files import put
from onnxbisect_backends.options import unknown
from onnxbisect_backends.toolchains.toolchain import (
    PipError,
    Say,
    Toolchain,
    made_folder,
    read_definition,
    run_to_end,
    toolchains,
    version_order,
)

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]*")
_AVAILABLE = "Available versions:"


@dataclass(frozen=True, kw_only=True)
class Series:
    """How to install a version of a compiler without shipped pins.

    `package` is the requirement, with extras. `also` are requirements that the package does not state, and `without`
    patterns for unneeded packages. `pinned`: nothing is resolved; the pins of the nearest shipped version are used,
    except for the package's own.
    """

    package: str
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    pinned: bool = False


#: The series of each toolchain, by its name.
SERIES: dict[str, Series] = {
    "iree": Series(package="iree-base-compiler[onnx]", without=("sympy", "mpmath")),
    "mnn": Series(package="MNN", without=("numpy",)),
    "nncase": Series(package="nncase"),
    "openvino": Series(package="openvino", without=("openvino-telemetry",)),
    "qnn": Series(package="onnxruntime-qnn"),
    # its own pin of torch installs gigabytes of CUDA libraries
    "rknn": Series(package="rknn-toolkit2", pinned=True),
    # its scripts import pkg_resources, which newer setuptools lack
    "tpu-mlir": Series(package="tpu_mlir[onnx]", also=("setuptools==65.5.0",)),
}


class Index:
    """The package index for one compiler's Python. `opened` creates it."""

    def __init__(self, name: str, python: Path, minor: str, folder: Path, say: Say) -> None:
        self._name, self._series = name, SERIES[name]
        self._python, self._minor, self._folder, self._say = python, minor, folder, say

    def versions(self) -> tuple[str, ...]:
        """All installable versions of the compiler, oldest first."""
        package = self._series.package.partition("[")[0]
        said = self._pip("index", "versions", package, "--only-binary=:all:")
        listed = next((line for line in said if line.startswith(_AVAILABLE)), "")
        found = [it.strip() for it in listed.removeprefix(_AVAILABLE).split(",")]
        return tuple(sorted((it for it in found if _VERSION.fullmatch(it)), key=version_order))

    def define(self, version: str) -> Toolchain:
        """Resolve that version and write its definition; OptionError if the index lacks it."""
        there = self.versions()
        if version not in there:
            raise OptionError(unknown(f"version of {self._name} on the package index", version, there))
        self._say(f"{self._name} {version}: finding out what it needs")
        # the newest shipped one that is not newer than that version, else the oldest
        known = [it for it in toolchains()[self._name] if not it.made] or list(toolchains()[self._name])
        near = next((it for it in reversed(known) if version_order(it.version) <= version_order(version)), known[0])
        own = self._series.package.partition("[")[0]
        if self._series.pinned:
            pins = [f"{own}=={version}" if _canonical(it.partition("==")[0]) == _canonical(own) else it
                    for it in near.requirements]  # fmt: skip
            elsewhere: Mapping[str, Sequence[str]] = near.elsewhere
        else:
            report = self._folder / "resolved.json"
            wanted = [f"{self._series.package}=={version}", *self._series.also]
            self._pip("install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report), *wanted)
            found = [it["metadata"] for it in json.loads(report.read_text(encoding="utf-8"))["install"]]
            kept = [
                it for it in found if not any(fnmatchcase(_canonical(it["name"]), one) for one in self._series.without)
            ]
            pins, elsewhere = sorted((f"{it['name']}=={it['version']}" for it in kept), key=str.lower), {}
        # as TOML, which includes JSON's strings and lists
        lines = [
            "# Resolved by onnx-bisect from the package index. To be rid of it, delete it and the folder of its name.",
            f"name = {json.dumps(near.name)}",
            f"version = {json.dumps(version)}",
            f"pythons = {json.dumps([self._minor])}",
            f"gigabytes = {near.gigabytes:g}",
            f"requirements = {json.dumps(list(pins), indent=4)}",
            f"set_aside = {json.dumps(list(near.set_aside), indent=4)}",
        ]
        if elsewhere:
            lines += [
                "",
                "[elsewhere]",
                *(f"{json.dumps(index)} = {json.dumps(list(it))}" for index, it in elsewhere.items()),
            ]
        text = "\n".join(lines) + "\n"
        folder = made_folder()
        folder.mkdir(parents=True, exist_ok=True)
        put(folder / f"{self._name}-{version}.toml", text.encode())
        return read_definition(text, made=True)

    def _pip(self, *words: str) -> list[str]:
        argv = [str(self._python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
        try:
            return run_to_end(argv, self._say)
        except PipError as error:
            raise BackendUnusableError(f"The package index could not be asked about {self._name}: {error}") from None


@contextmanager
def opened(name: str, say: Say) -> Iterator[Index]:
    """The index for the compiler of that name. Raises OptionError if its package is unknown.

    It and its methods raise BackendUnusableError if the index cannot be reached.
    """
    if name not in SERIES:
        raise OptionError(unknown("compiler of which the package index has versions", name, SERIES))
    minor, base = toolchains()[name][-1].interpreter()
    with TemporaryDirectory(prefix="onnx-bisect-index-") as place:
        try:
            run_to_end([str(base), "-I", "-m", "venv", f"{place}/venv"], say)
        except PipError as error:
            raise BackendUnusableError(f"An environment of {base} could not be made: {error}") from None
        yield Index(name, Path(place, "venv", "bin", "python"), minor, Path(place), say)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
