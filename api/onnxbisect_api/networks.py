"""The networks of models, for their pictures: from the files that were stored when the models were read."""

import gzip
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from onnxbisect.report import network_file
from onnxbisect.report.network import Network
from onnxbisect_db.files import FileStore

#: A network of ten thousand units takes some ten megabytes, its drawing as it is sent a quarter of one.
_NETWORKS, _DRAWINGS = 3, 8
#: Of nine levels; higher ones take several times as long for a tenth less.
_LEVEL = 5

T = TypeVar("T")


class Networks:
    """The last few that were asked for, by the SHA-256 of their file. Threads may share them.

    Everything raises FileNotFoundError where it is not stored any more.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._networks: _Kept[Network] = _Kept(_NETWORKS)
        self._drawings: _Kept[bytes] = _Kept(_DRAWINGS)

    def network(self, sha256: str) -> Network:
        """To draw a part of it, or to tell of a unit."""

        def read() -> Network:
            with self._files.open(sha256) as file:
                return network_file.network(file)

        return self._networks.of(sha256, read)

    def drawing(self, sha256: str) -> bytes:
        """Of the whole, in gzip."""

        def read() -> bytes:
            with self._files.open(sha256) as file:
                return packed(network_file.whole(file))

        return self._drawings.of(sha256, read)


def packed(content: bytes) -> bytes:
    """In gzip, the same for the same content."""
    return gzip.compress(content, _LEVEL, mtime=0)


class _Kept(Generic[T]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()

    def of(self, sha256: str, read: Callable[[], T]) -> T:
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return self._kept[sha256]
        found = read()
        with self._lock:
            self._kept[sha256] = found
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found
