"""A package index in a folder: three versions of a compiler, each with what it needs, and one definition of it."""

import os
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from onnxbisect_backends.toolchains.series import SERIES, Series
from onnxbisect_backends.toolchains.toolchain import made_folder

#: Refuses the ops that its version has no support for; names of nodes begin with their ops.
COMPILER = """
import pathlib, sys

REFUSED = {refused!r}

def main():
    text = pathlib.Path(sys.argv[1]).read_bytes()
    found = [op for op in REFUSED if op.encode() in text]
    for op in found:
        print("error: no", op)
    return bool(found)
"""


def wheel(folder: Path, name: str, version: str, code: str = "", needs: Sequence[str] = ()) -> None:
    """A package of one module, of pure Python."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {it}" for it in needs),
    ]
    files = {
        f"{module}.py": code,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))


@dataclass(frozen=True, kw_only=True)
class TinyIndex:
    """The ops that each version refuses."""

    refused: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"1.0": ("Asinh",), "1.2": ("Asinh", "Cosh"), "1.10": ("Cosh",)}
    )

    @property
    def minor(self) -> str:
        return "{}.{}".format(*sys.version_info)

    def put_up(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Build the wheels, let pip know of no others, and make the oldest version known as 'tiny'."""
        wheels = folder / "wheels"
        for version, refused in self.refused.items():
            needs = ["tiny-needs", "tiny-reports-home>=1"]
            wheel(wheels, "tiny-compiler", version, COMPILER.format(refused=refused), needs)
        for version in ("1.0", "2.0"):
            wheel(wheels, "tiny-needs", version)
        wheel(wheels, "tiny-reports-home", "1.0")
        monkeypatch.setenv("ONNXBISECT_CACHE_DIR", str(folder / "cache"))
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
        monkeypatch.setitem(SERIES, "tiny", Series(package="tiny-compiler", without=("tiny-reports-*",)))
        made_folder().mkdir(parents=True, exist_ok=True)
        oldest = min(self.refused)
        (made_folder() / f"tiny-{oldest}.toml").write_text(
            f'name = "tiny"\nversion = "{oldest}"\npythons = ["3.99", "{self.minor}"]\ngigabytes = 0.1\n'
            f'requirements = ["tiny_compiler=={oldest}", "tiny-needs==1.0"]\n'
        )
        return folder


TINY = TinyIndex()
