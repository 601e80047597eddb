"""The nodes that must stay precise, as a server has found them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.json_form import from_json
from onnxbisect.precision.report import PrecisionReport

#: Where a job's files on precision are, below it and among its `files`.
FOLDER = "precision/"


@dataclass(frozen=True, kw_only=True)
class RemotePrecision:
    """The result of a search on a server; `report` has the contents of precision.json (docs/precision.md).

    `names` are the files that `onnx-bisect precision` writes.
    """

    report: PrecisionReport
    names: tuple[str, ...]
    fetch: Callable[[str, Path], object] = field(repr=False, compare=False)

    @classmethod
    def of(cls, document: Any, names: Sequence[str], fetch: Callable[[str, Path], object]) -> Self:
        """From the server's document, and what downloads a file to a path."""
        try:
            report = from_json(document, PrecisionReport)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BackendUnusableError("The server's precision.json is of another version.") from error
        return cls(report=report, names=tuple(sorted(names)), fetch=fetch)

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return self.report.headline

    @property
    def keep(self) -> tuple[str, ...]:
        """The names of the nodes to keep in high precision."""
        return tuple(it.node for it in self.report.members)

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Download all files into a folder, and return their names. OptionError if one cannot be written."""
        out = Path(folder)
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name in self.names:
                if Path(name).name != name:
                    raise BackendUnusableError(f"The server names a file that is none of this folder: {name!r}.")
                self.fetch(name, out / name)
        except OSError as error:
            raise OptionError(f"{out} cannot be written: {error.strerror or error}.") from error
        return list(self.names)
