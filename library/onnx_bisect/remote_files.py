"""The files that belong to a report on a server."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onnxbisect.drawing import model_explorer
from onnxbisect_backends.probing.prober import DATA_NAME, LOG_NAME, PROBE_NAME


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
