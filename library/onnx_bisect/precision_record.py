"""What a search for nodes that must stay precise has measured, and what it may still measure."""

import json
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType

from onnxbisect.precision.report import Asked
from onnxbisect.report.files import put

#: The file of a folder's measurements.
RECORD = "asks.jsonl"


class MeasurementBudget:
    """Measurements and seconds that several searches share."""

    def __init__(self, calls: int | None, seconds: float | None, began: float) -> None:
        self._calls = inf if calls is None else calls
        self._deadline = inf if seconds is None else began + seconds
        self._whole: MeasurementBudget | None = None

    def part(self, calls: int) -> "MeasurementBudget":
        """So many measurements of it at most, for one of the searches."""
        found = MeasurementBudget(calls, None, 0.0)
        found._whole = self
        return found

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        over = self._whole is not None and self._whole.spent
        return over or self._calls <= 0 or time.monotonic() >= self._deadline

    def take(self) -> None:
        """Take one measurement."""
        self._calls -= 1
        if self._whole is not None:
            self._whole.take()


class Record:
    """The measurements of all arithmetics.

    `values` are those that are known, of the same question: `resumed` counts the ones that were taken from there.
    `asked` are those that the search needed, in order; others were measured ahead. `silent` says of what gave no
    numbers why: it is not asked again as long as this mapping is kept, which no file does.
    """

    def __init__(
        self,
        values: Mapping[tuple[str, frozenset[str]], float] = MappingProxyType({}),
        silent: dict[tuple[str, frozenset[str]], str] | None = None,
    ) -> None:
        self.asked, self.resumed = list[Asked](), 0
        self.values = dict(values)
        self.silent = {} if silent is None else silent

    def add(self, on: str, keep: frozenset[str], value: float, *, work: float, shown: str, why: str) -> None:
        """Record one measurement as soon as it was made: the rest is what people see of it."""
        self.values[on, keep] = value


class FolderRecord(Record):
    """A record with a file, from which a later search of the same question continues."""

    def __init__(self, folder: Path, identity: object) -> None:
        super().__init__()
        self._file = folder / RECORD
        head = json.dumps({"question": identity})
        folder.mkdir(parents=True, exist_ok=True)
        lines = self._file.read_text().splitlines() if self._file.is_file() else []
        if lines[:1] == [head]:
            for line in lines[1:]:
                try:
                    entry = json.loads(line)
                    self.values[entry["on"], frozenset(entry["keep"])] = float(entry["value"])
                except (ValueError, KeyError, TypeError):
                    break  # a process was killed while it wrote
            kept = [_line(on, keep, value) for (on, keep), value in self.values.items()]
            put(self._file, "\n".join([head, *kept, ""]).encode())
        else:
            put(self._file, f"{head}\n".encode())

    def add(self, on: str, keep: frozenset[str], value: float, *, work: float, shown: str, why: str) -> None:
        super().add(on, keep, value, work=work, shown=shown, why=why)
        with self._file.open("a") as stream:
            stream.write(_line(on, keep, value) + "\n")


def _line(on: str, keep: frozenset[str], value: float) -> str:
    return json.dumps({"on": on, "keep": sorted(keep), "value": value})
