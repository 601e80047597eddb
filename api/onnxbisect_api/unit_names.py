"""Cached names of a target's units, from the file that a worker stored when it read the model."""

import json
from dataclasses import dataclass
from functools import lru_cache

from onnxbisect_db.files import FileStore

#: Entries of the cache; one with ten thousand units has 2 MB.
_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class UnitNames:
    """The name of each unit's node, and its op, in the order of the units."""

    names: tuple[str, ...]
    ops: tuple[str, ...]


class Names:
    """A cache of the last few models' names, by the SHA-256 of the stored universe. Threads may share it."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._kept = lru_cache(maxsize=_KEPT)(self._read)

    def of(self, universe: str) -> UnitNames:
        """The names in the universe with this SHA-256; FileNotFoundError if it is not stored any more."""
        return self._kept(universe)

    def _read(self, universe: str) -> UnitNames:
        with self._files.open(universe) as file:
            # `Prepared` is not used, because its unit sets cost more than the names. Only the first line is read,
            # because the others contain facts about the model.
            read = json.loads(file.readline())["universe"]
        return UnitNames(names=tuple(names[0] if names else "" for names in read["names"]), ops=tuple(read["op"]))
