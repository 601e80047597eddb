"""What a client downloads from a server: the files of a report, and the results of a repair and a precision search."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self

from onnx_bisect.result import ShownPrecision, ShownRepair
from onnx_bisect.steps.repair_compiler import REPAIRED
from onnx_bisect.steps.repairing import REPORT
from onnxbisect.drawing import model_explorer
from onnxbisect.errors import BackendUnusableError, OptionError
from onnxbisect.json_form import from_json
from onnxbisect.precision.report import PrecisionReport
from onnxbisect.remedies.document import RepairDocument
from onnxbisect.verdict import Status
from onnxbisect_backends.probing.prober import DATA_NAME, LOG_NAME, PROBE_NAME

#: The server's path, below the repair's address, of each file that `fix` writes.
_FILES = {REPAIRED: "/model.onnx", REPORT: "/report.json", "repair.md": "?format=md", "repair.json": "?format=json"}
#: Where a job's files on precision are, below it and among its `files`.
FOLDER = "precision/"


class FetchRepair(Protocol):
    """Downloads files of a repair."""

    def __call__(self, path: str, to: Path) -> bool:
        """Download `path`, relative to the repair's address, to the file `to`. Returns False if the server has none."""


@dataclass(frozen=True, kw_only=True)
class RemoteRepair(ShownRepair):
    """The result of a repair. `document` has the contents of repair.json (docs/fix.md)."""

    document: RepairDocument
    fetch: FetchRepair = field(repr=False, compare=False)

    @property
    def compiles(self) -> bool:
        """Whether the compiler accepts the model, after repairs if any were needed."""
        return self.document.verdict == Status.PASS

    @property
    def repaired(self) -> bool:
        """Whether there is a repaired model; it may still have culprits (`document.left`)."""
        return self.document.repaired

    def save(self, path: str | PathLike[str]) -> Path:
        """Download the repaired model. It needs the original's external data files beside it.

        Raises OptionError if nothing was repaired or the file cannot be written.
        """
        path = Path(path)
        if not self._fetched(REPAIRED, path):
            raise OptionError(f"There is no repaired model: {self.headline}")
        return path

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Download the files of `onnx-bisect fix` into a folder, without external data, and return their names.

        Raises OptionError if a file cannot be written.
        """
        out = Path(folder)
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name in _FILES:
                (out / name).unlink(missing_ok=True)  # it may be of an earlier repair
        except OSError as error:
            raise OptionError(f"{out} cannot be written: {error.strerror or error}.") from error
        return [name for name in _FILES if self._fetched(name, out / name)]

    def _fetched(self, name: str, to: Path) -> bool:
        try:
            return self.fetch(_FILES[name], to)
        except OSError as error:
            raise OptionError(f"{to} cannot be written: {error.strerror or error}.") from error


class FetchFile(Protocol):
    """Downloads files of a culprit."""

    def __call__(self, number: int, name: str, to: Path) -> bool:
        """Download to `to`; culprits count from 1. Returns False if the culprit has no file of that name."""


@dataclass(frozen=True, kw_only=True)
class RemoteFiles:
    """The attachments of a report, downloaded from the server.

    `paths` are those of its files, `picture` returns a file for Model Explorer by its name, if there is one.
    """

    paths: Collection[str]
    fetch: FetchFile
    picture: Callable[[str], bytes | None]

    def of_culprit(self, number: int, folder: Path) -> Mapping[str, Path | bytes]:
        mine = [path.rpartition("/")[2] for path in self.paths if path.startswith(f"culprits/{number:02d}-")]
        paths = {name: folder / f"{number}-{name}" for name in (PROBE_NAME, DATA_NAME, LOG_NAME) if name in mine}
        return {name: path for name, path in paths.items() if self.fetch(number, name, path)}

    def pictures(self) -> Mapping[str, bytes]:
        found = {place: self.picture(place.rpartition("/")[2]) for place in model_explorer.FILES}
        return {place: content for place, content in found.items() if content is not None}


@dataclass(frozen=True, kw_only=True)
class RemotePrecision(ShownPrecision):
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
