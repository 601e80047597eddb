"""What the units of a target are called: from the universe that was stored when the model was read."""

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from onnxbisect_db.files import FileStore

#: One of ten thousand units takes two megabytes.
_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class UnitNames:
    """By unit: the name of its node, and its op."""

    names: tuple[str, ...]
    ops: tuple[str, ...]


class Names:
    """The last few that were asked for, by the SHA-256 of their universe. Threads may share them."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._lock = Lock()
        self._kept: OrderedDict[str, UnitNames] = OrderedDict()

    def of(self, universe: str) -> UnitNames:
        """FileNotFoundError where it is not stored any more."""
        with self._lock:
            if universe in self._kept:
                self._kept.move_to_end(universe)
                return self._kept[universe]
        with self._files.open(universe) as file:
            # Not by way of `Prepared`: its sets of units cost more than these two. Behind the first line is only what
            # intake established.
            read = json.loads(file.readline())["universe"]
        found = UnitNames(names=tuple(names[0] if names else "" for names in read["names"]), ops=tuple(read["op"]))
        with self._lock:
            self._kept[universe] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found
