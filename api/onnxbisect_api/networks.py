"""Cached networks of models for pictures, from the files that workers store when they read the models."""

import gzip
from functools import lru_cache

from onnxbisect.report import network_file
from onnxbisect.report.network import Network
from onnxbisect_db.files import FileStore

#: Entries of the caches: with ten thousand units, a network has 10 MB, its drawing in gzip 0.25 MB.
_NETWORKS, _DRAWINGS = 3, 8
#: The level of gzip; higher ones take several times as long and save a tenth.
_LEVEL = 5


class Networks:
    """A cache of the last few networks, by the SHA-256 of their file. Threads may share it.

    Every method raises FileNotFoundError if the file is not stored any more.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._network = lru_cache(maxsize=_NETWORKS)(self._read)
        self._drawing = lru_cache(maxsize=_DRAWINGS)(self._drawn)

    def network(self, sha256: str) -> Network:
        """The network as an object, to draw a part of it or to show a unit."""
        return self._network(sha256)

    def drawing(self, sha256: str) -> bytes:
        """The drawing of the whole model, in gzip."""
        return self._drawing(sha256)

    def _read(self, sha256: str) -> Network:
        with self._files.open(sha256) as file:
            return network_file.network(file)

    def _drawn(self, sha256: str) -> bytes:
        with self._files.open(sha256) as file:
            return packed(network_file.whole(file))


def packed(content: bytes) -> bytes:
    """The content in gzip without a time, so that equal content gives equal bytes."""
    return gzip.compress(content, _LEVEL, mtime=0)
