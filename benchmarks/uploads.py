"""A large upload beside what the disk does by itself."""

import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import empty_api
from installation import Api, Installed, cpu_seconds, forget_peak, resident

_BLOCK = 1 << 20
_TIMEOUT = 300.0
#: Of an ONNX file, which the API looks at: `ir_version`, and a graph of 256 MB that begins.
_BEGINNING = b"\x08\x0a:\xff\xff\xff\x7f"


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """Seconds that the upload took, and the same bytes written to the same disk with a sync in the end, each several
    times; bytes of memory that the API held when it had answered its first requests, and at most; of that what is its
    own, and no page of a program's or a library's file; what an API holds that does nothing on the same libraries;
    processor time of the API for all uploads.
    """

    size: int
    uploads: tuple[float, ...]
    writes: tuple[float, ...]
    digests: tuple[float, ...]
    idle: int
    most: int
    own: int
    bare: int
    cpu: float

    @property
    def ratio(self) -> float:
        """Of the speeds, in the middle of what was measured."""
        return _middle(self.writes) / _middle(self.uploads)

    @property
    def cpu_per_gigabyte(self) -> float:
        """Seconds of the API's processes."""
        return self.cpu / len(self.uploads) / (self.size / 1e9)

    def speed(self, seconds: tuple[float, ...]) -> float:
        """Megabytes a second."""
        return self.size / 1e6 / _middle(seconds)


def measure(here: Installed, size: int, times: int) -> Uploaded:
    """In turn, so that whatever else the disk does falls on both alike."""
    block = os.urandom(_BLOCK)
    with here.api() as api:
        _upload(api, block, _BLOCK, b"warm")
        idle = resident(api.pid)
        forget_peak(api.pid)
        uploads, writes, digests = [], [], []
        used = cpu_seconds(api.pid)
        for number in range(times):
            writes.append(_written(here.folder / "beside", block, size))
            uploads.append(_upload(api, block, size, str(number).encode()))
            digests.append(_digested(block, size))
        used = cpu_seconds(api.pid) - used
        most, own = resident(api.pid, "VmHWM"), resident(api.pid, "RssAnon")
    return Uploaded(
        size=size,
        uploads=tuple(uploads),
        writes=tuple(writes),
        digests=tuple(digests),
        idle=idle,
        most=most,
        own=own,
        bare=_bare(here),
        cpu=used,
    )


def _bare(here: Installed) -> int:
    """Bytes that `bare` holds when it has answered."""
    addresses = [here.environment[f"ONNXBISECT_{name}_URL"] for name in ("DATABASE", "REDIS")]
    process = subprocess.Popen([sys.executable, empty_api.__file__, *addresses], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        started = next(found for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        connection = http.client.HTTPConnection("127.0.0.1", int(started[1]), timeout=_TIMEOUT)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        return resident(process.pid)
    finally:
        process.kill()
        process.communicate()


def _upload(api: Api, block: bytes, size: int, first: bytes) -> float:
    """A body that begins with `first` and goes on with blocks."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=_TIMEOUT, blocksize=_BLOCK)
    began = time.monotonic()
    connection.putrequest("PUT", "/v1/models")
    for name, value in {**api.headers, "Content-Length": str(size)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    beginning = _BEGINNING + first
    connection.send(beginning)
    left = size - len(beginning)
    while left:
        connection.send(block[: min(left, _BLOCK)])
        left -= min(left, _BLOCK)
    response = connection.getresponse()
    said = response.read()
    took = time.monotonic() - began
    assert response.status == 201, said
    assert json.loads(said)["size"] == size
    connection.close()
    return took


def _written(path: Path, block: bytes, size: int) -> float:
    """As the service does it, without the service: write, sync the file, name it, sync the folder."""
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(size // _BLOCK):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    path.replace(path.with_suffix(".there"))
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    took = time.monotonic() - began
    path.with_suffix(".there").unlink()
    return took


def _digested(block: bytes, size: int) -> float:
    """What SHA-256 alone takes."""
    digest = hashlib.sha256()
    began = time.monotonic()
    for _ in range(size // _BLOCK):
        digest.update(block)
    return time.monotonic() - began


def _middle(seconds: tuple[float, ...]) -> float:
    return sorted(seconds)[len(seconds) // 2]
