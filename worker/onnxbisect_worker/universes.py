"""Prepared searches that this process has read: a coordinator's next turn is mostly one of a search that it had."""

from collections import OrderedDict
from threading import Lock

from onnxbisect_db.files import FileStore
from onnxbisect_worker.prepared import Prepared

#: A universe of ten thousand units takes some ten megabytes.
_KEPT = 32


class Universes:
    """The last few, by the SHA-256 of their files. Threads may share them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Prepared] = OrderedDict()

    def read(self, files: FileStore, sha256: str) -> Prepared:
        """FileNotFoundError where it is not stored."""
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return self._kept[sha256]
        with files.open(sha256) as file:
            prepared = Prepared.from_bytes(file.read())
        with self._lock:
            self._kept[sha256] = prepared
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return prepared
