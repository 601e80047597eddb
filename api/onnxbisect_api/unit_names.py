"""Cached names of a target's units, from the file that a worker stored when it read the model."""

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

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
        self._lock = Lock()
        self._kept: OrderedDict[str, UnitNames] = OrderedDict()

    def of(self, universe: str) -> UnitNames:
        """The names in the universe with this SHA-256; FileNotFoundError if it is not stored any more."""
        with self._lock:
            if universe in self._kept:
                self._kept.move_to_end(universe)
                return self._kept[universe]
        with self._files.open(universe) as file:
            # `Prepared` is not used, because its unit sets cost more than the names. Only the first line is read,
            # because the others contain facts about the model.
            read = json.loads(file.readline())["universe"]
        found = UnitNames(names=tuple(names[0] if names else "" for names in read["names"]), ops=tuple(read["op"]))
        with self._lock:
            self._kept[universe] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found
