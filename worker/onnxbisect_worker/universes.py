"""Universes of searches that this process has read: a coordinator's next turn is mostly one of a search that it had."""

from collections import OrderedDict
from threading import Lock

from onnxbisect.universe import Universe
from onnxbisect_db.files import FileStore
from onnxbisect_worker.prepared import Prepared

#: A universe of ten thousand units takes some ten megabytes.
_KEPT = 32


class Universes:
    """The last few, by the SHA-256 of their files. Threads may share them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Universe] = OrderedDict()

    def read(self, files: FileStore, sha256: str) -> Universe:
        """That of a prepared search; FileNotFoundError where it is not stored."""
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return self._kept[sha256]
        with files.open(sha256) as file:
            universe = Prepared.from_bytes(file.read()).universe
        with self._lock:
            self._kept[sha256] = universe
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return universe
