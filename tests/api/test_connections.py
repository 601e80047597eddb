"""Connections over a real network: silent and slow ones do not keep others from being answered."""

import http.client
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from onnxbisect_api import limits
from onnxbisect_api.uploads import receiving
from onnxbisect_db.states import Scope
from onnxbisect_service.settings import Settings
from support.api.callers import Callers
from support.api.live import served as live
from support.api.served import Served, served

#: The head of a request whose body is awaited.
_FORM = (
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is this machine only there")


@pytest.fixture
def server(tables: Path, tmp_path: Path) -> Iterator[Served]:
    shutil.copy(tables, tmp_path / "onnx-bisect.sqlite")
    with served(tmp_path, files=1024, connections=40, address_connections=20) as running:
        yield running


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))


def status(port: int, source: str = "127.0.0.1") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status
    finally:
        connection.close()


def seconds_until_closed(connection: socket.socket) -> float:
    began = time.monotonic()
    while connection.recv(65536):
        pass
    return time.monotonic() - began


@pytest.mark.long
def test_silent_connections_do_not_use_up_all_descriptors(tables: Path, tmp_path: Path) -> None:
    """With the default limits: 1100 sockets that say nothing, and 1024 files that the server may open."""
    shutil.copy(tables, tmp_path / "onnx-bisect.sqlite")
    with served(tmp_path, files=1024) as server, ExitStack() as silent:
        for number in range(1100):
            silent.enter_context(connected(server.port, f"127.0.0.{number % 8 + 1}"))
        assert status(server.port) == 200
        assert status(server.port, "127.0.0.99") == 200
        assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) < 600
        assert "Too many open files" not in server.log.read_text()


def test_one_address_does_not_take_the_connections_of_others(server: Served) -> None:
    with ExitStack() as stack:
        kept = stack.enter_context(connected(server.port, "127.0.0.2"))
        for _ in range(60):
            stack.enter_context(connected(server.port, "127.0.0.3"))
        kept.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_request_that_is_answered_does_not_give_way(server: Served) -> None:
    """The connections that are full of them refuse a new one, with a status that says when to come again."""
    with ExitStack() as stack:
        for _ in range(20):
            busy = stack.enter_context(connected(server.port))
            busy.sendall(_FORM)
            assert busy.recv(65536).startswith(b"HTTP/1.1 100 ")
        assert status(server.port) == 503
        assert status(server.port, "127.0.0.2") == 200
        busy.sendall(b"x" * 100)
        assert busy.recv(65536).startswith(b"HTTP/1.1 4")


def test_the_head_of_a_request_has_a_time_limit(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.5)
    with live(callers.app, callers.token(Scope.READ)) as client:
        port = client.base_url.port
        assert port is not None
        with connected(port) as silent, connected(port) as slow:
            slow.sendall(b"GET /livez HTTP/1.1\r\n")
            assert seconds_until_closed(silent) < 5
            assert seconds_until_closed(slow) < 5
        with connected(port) as again:  # the second head counts from the first answer
            again.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\n")
            assert seconds_until_closed(again) < 5


def test_a_small_body_has_a_time_limit(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "DOCUMENT_SECONDS", 0.5)
    token = callers.token(Scope.SUBMIT)
    with live(callers.app, token) as client:
        port = client.base_url.port
        assert port is not None
        with connected(port) as slow:
            head = f"Host: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 9"
            slow.sendall(f"POST /v1/jobs HTTP/1.1\r\n{head}\r\n\r\n{{".encode())
            assert slow.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_a_proxy_brings_the_connections_of_many(tables: Path, tmp_path: Path) -> None:
    shutil.copy(tables, tmp_path / "onnx-bisect.sqlite")
    limits: dict[str, Any] = {"connections": 40, "address_connections": 5, "trusted_proxies": "127.0.0.2"}
    with served(tmp_path, **limits) as server, ExitStack() as stack:
        for _ in range(10):
            busy = stack.enter_context(connected(server.port, "127.0.0.2"))
            busy.sendall(_FORM)
            assert busy.recv(65536).startswith(b"HTTP/1.1 100 ")


def test_a_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="not-an-address"):
        Settings(trusted_proxies=("not-an-address",))
