"""A repair that a server makes: what is asked of it, and what came of it."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Protocol

from onnxbisect.errors import OptionError
from onnxbisect.proof import Tolerance
from onnxbisect.remedies.document import RepairDocument
from onnxbisect.remedies.summary import headline
from onnxbisect.rewrites import Exactness
from onnxbisect.verdict import Status
from onnxbisect_backends.other_options import Wanted
from onnxbisect_backends.probing.repair_compiler import REPAIRED
from onnxbisect_backends.probing.repairing import REPORT

#: By the name that `fix` writes a file under, where the server has it.
_FILES = {REPAIRED: "/model.onnx", REPORT: "/report.json", "repair.md": "?format=md", "repair.json": "?format=json"}


@dataclass(frozen=True, kw_only=True)
class RepairTerms:
    """What a repair may do, and how it is proven: arguments of `fix`. `samples` is a `.npz`, or a folder of them."""

    allow: Exactness = Exactness.ROUNDING
    samples: str | PathLike[str] | None = None
    count: int = 4
    tolerance: Tolerance = field(default_factory=Tolerance)
    alternatives: Wanted | None = None


class FetchRepair(Protocol):
    """Fetches what a server has of a repair."""

    def __call__(self, path: str, to: Path) -> bool:
        """What is at this path below the repair, into a file; False where there is no such thing."""


@dataclass(frozen=True, kw_only=True)
class RemoteRepair:
    """What a repair came to. `document` says all of it as values, as repair.json does (docs/fix.md)."""

    document: RepairDocument
    fetch: FetchRepair = field(repr=False, compare=False)

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        return headline(self.document)

    @property
    def compiles(self) -> bool:
        """Whether the compiler takes the model, repaired where it had to be."""
        return self.document.verdict == Status.PASS

    @property
    def repaired(self) -> bool:
        """Whether there is a repaired model; it may still have culprits (`document.left`)."""
        return self.document.repaired

    def save(self, path: str | PathLike[str]) -> Path:
        """Fetch the repaired model. Its external data is that of the original, which belongs beside it.

        Raises OptionError where nothing was repaired, or the file cannot be written.
        """
        path = Path(path)
        if not self._fetched(REPAIRED, path):
            raise OptionError(f"There is no repaired model: {self.headline}")
        return path

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Put all that `onnx-bisect fix` writes into a folder, but for external data, and return the names. Raises
        OptionError where it cannot be written.
        """
        out = Path(folder)
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name in _FILES:
                (out / name).unlink(missing_ok=True)  # that of an earlier repair is no part of this one
        except OSError as error:
            raise OptionError(f"{out} cannot be written: {error.strerror or error}.") from error
        return [name for name in _FILES if self._fetched(name, out / name)]

    def _fetched(self, name: str, to: Path) -> bool:
        try:
            return self.fetch(_FILES[name], to)
        except OSError as error:
            raise OptionError(f"{to} cannot be written: {error.strerror or error}.") from error
