"""Cached networks of models for pictures, from the files that workers store when they read the models."""

import gzip
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from onnxbisect.report import network_file
from onnxbisect.report.network import Network
from onnxbisect_db.files import FileStore

#: Entries of the caches: with ten thousand units, a network has 10 MB, its drawing in gzip 0.25 MB.
_NETWORKS, _DRAWINGS = 3, 8
#: The level of gzip; higher ones take several times as long and save a tenth.
_LEVEL = 5

T = TypeVar("T")


class Networks:
    """A cache of the last few networks, by the SHA-256 of their file. Threads may share it.

    Every method raises FileNotFoundError if the file is not stored any more.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._networks: _Kept[Network] = _Kept(_NETWORKS)
        self._drawings: _Kept[bytes] = _Kept(_DRAWINGS)

    def network(self, sha256: str) -> Network:
        """The network as an object, to draw a part of it or to show a unit."""

        def read() -> Network:
            with self._files.open(sha256) as file:
                return network_file.network(file)

        return self._networks.of(sha256, read)

    def drawing(self, sha256: str) -> bytes:
        """The drawing of the whole model, in gzip."""

        def read() -> bytes:
            with self._files.open(sha256) as file:
                return packed(network_file.whole(file))

        return self._drawings.of(sha256, read)


def packed(content: bytes) -> bytes:
    """The content in gzip without a time, so that equal content gives equal bytes."""
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
