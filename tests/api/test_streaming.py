"""Uploads over a real network: what they cost in memory, and what is left when they end before their end."""

import asyncio
import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import Request

from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.uploads import receiving
from onnxbisect_db import tokens
from onnxbisect_db.database import Database
from onnxbisect_db.states import Scope
from support.api.model_bytes import model
from support.api.served import Served, served

_LIMIT = 210 << 20
_BLOCK = os.urandom(1 << 20)
_FIRST = model(_BLOCK)[: len(_BLOCK)]
_JOB = b'--b\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"targets": [{"backend": "onnxruntime"}]}\r\n'
_PAGE = b'--b\r\nContent-Disposition: form-data; name="backend"\r\n\r\nonnxruntime\r\n'
_DATA = b'--b\r\nContent-Disposition: form-data; name="data"; filename="w"\r\n\r\n'

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads a process's peak memory from /proc")


@pytest.fixture(scope="module")
def folder(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(tables, folder / "onnx-bisect.sqlite")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with served(folder, upload_bytes=_LIMIT, uploads="1000/second", tenant_uploads=100, open_uploads=100) as running:
        yield running


@pytest.fixture(scope="module")
def token(folder: Path) -> str:
    return token_in(folder)


def token_in(folder: Path, tenant: str = "") -> str:
    database = Database(f"sqlite:///{folder / 'onnx-bisect.sqlite'}")
    with database.transaction() as session:
        text = tokens.issue(session, tenant=tenant, name="test", scopes=(Scope.SUBMIT,)).text
    database.close()
    return text


@pytest.fixture(autouse=True)
def empty(folder: Path) -> Iterator[None]:
    """Nothing is left of one test in the next."""
    yield
    for path in (folder / "files").rglob("*"):
        if path.is_file():
            path.unlink()


def unfinished(folder: Path) -> list[Path]:
    return list((folder / "files" / "unfinished").iterdir())


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does soon."""
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def send(
    server: Served, token: str, body: Iterator[bytes], asks: str = "PUT /v1/models", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        method, path = asks.split()
        connection.request(
            method,
            path,
            body=body,
            headers={"Authorization": f"Bearer {token}", **named},
            encode_chunked="Content-Length" not in named,
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def begun(server: Served, token: str, head: str, body: bytes = b"", asks: str = "PUT /v1/models") -> socket.socket:
    """A request as it looks on the wire, of which more may come."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    authorization = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{asks} HTTP/1.1\r\n{authorization}{head}\r\n\r\n".encode() + body)
    return connection


@pytest.mark.parametrize(
    ("asks", "head", "answers"),
    [
        ("PUT /v1/models", b"", 201),
        ("POST /v1/models", _DATA, 201),
        pytest.param("POST /v1/jobs", _JOB + _DATA, 202, marks=pytest.mark.long),
        pytest.param("POST /new", _PAGE + _DATA, 303, marks=pytest.mark.long),
    ],
)
def test_a_large_upload_takes_little_memory(
    server: Served, folder: Path, token: str, asks: str, head: bytes, answers: int
) -> None:
    size = 200 << 20
    foot = b'\r\n--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n%s\r\n--b--\r\n' % model()

    def body() -> Iterator[bytes]:
        yield head or _FIRST
        for _ in range((size >> 20) - (not head)):
            yield _BLOCK
        yield foot if head else b""

    length = size + (len(head) + len(foot) if head else 0)
    before = server.forget_peak()
    status, _ = send(
        server,
        token,
        body(),
        asks,
        Content_Length=str(length),
        Content_Type="multipart/form-data; boundary=b" if head else "application/octet-stream",
    )
    assert status == answers
    assert server.peak_memory() - before < 40 << 20
    assert sum(path.stat().st_size for path in (folder / "files").glob("??/*")) >= size
    assert unfinished(folder) == []


def test_every_byte_of_a_large_upload_is_where_it_was(server: Served, folder: Path, token: str) -> None:
    """However the network cuts it, and whatever memory it goes through."""
    whole = model(os.urandom((30 << 20) + 12_345))
    status, answer = send(server, token, (whole[at : at + 777_777] for at in range(0, len(whole), 777_777)))
    assert status == 201
    assert json.loads(answer)["sha256"] == hashlib.sha256(whole).hexdigest()
    assert [path.read_bytes() == whole for path in (folder / "files").glob("??/*")] == [True]


def test_what_is_said_to_be_too_large_is_refused_before_it_comes(server: Served, folder: Path, token: str) -> None:
    with begun(server, token, f"Content-Length: {_LIMIT + 1}\r\nExpect: 100-continue") as connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 413
        assert answer.headers["content-type"] == "application/problem+json"
    assert unfinished(folder) == []


def test_what_turns_out_to_be_too_large_is_refused_at_once(server: Served, folder: Path, token: str) -> None:
    sent = 0

    def body() -> Iterator[bytes]:
        """Goes on until the server has thrown away what it got."""
        nonlocal sent
        yield _FIRST
        while sent <= _LIMIT or unfinished(folder):
            assert sent < 4 * _LIMIT
            sent += len(_BLOCK)
            yield _BLOCK

    status, answer = send(server, token, body())
    assert status == 413
    assert b"larger than" in answer
    assert list((folder / "files").glob("??/*")) == []


@pytest.mark.parametrize("head", ["Content-Length: 9999999", "Transfer-Encoding: chunked"])
def test_an_upload_that_breaks_off_leaves_nothing(server: Served, folder: Path, token: str, head: str) -> None:
    body = model(size=3_000_000)
    if "chunked" in head:
        body = f"{len(body):x}\r\n".encode() + body
    connection = begun(server, token, head, body)
    until(lambda: [path.stat().st_size > 0 for path in unfinished(folder)] == [True])
    connection.close()
    until(lambda: unfinished(folder) == [])
    assert list((folder / "files").glob("??/*")) == []
    assert "Traceback" not in server.log.read_text()


def test_a_job_s_form_that_breaks_off_leaves_nothing(server: Served, folder: Path, token: str) -> None:
    head = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 9999999"
    connection = begun(server, token, head, _JOB + _DATA + b"x" * 3_000_000, "POST /v1/jobs")
    until(lambda: [path.stat().st_size > 0 for path in unfinished(folder)] == [True])
    connection.close()
    until(lambda: unfinished(folder) == [])
    assert list((folder / "files").glob("??/*")) == []
    assert "Traceback" not in server.log.read_text()


def test_slow_clients_hold_nobody_up(server: Served, folder: Path, token: str) -> None:
    """More of them than there are threads for requests, each in the middle of its upload."""
    slow = [begun(server, token, "Content-Length: 3000000", model(size=2_200_000)) for _ in range(60)]
    try:
        until(lambda: len([path for path in unfinished(folder) if path.stat().st_size > 0]) == len(slow))
        answered, _ = send(server, token, iter([model(b"quick")]))
        assert answered == 201
    finally:
        for connection in slow:
            connection.close()
    until(lambda: unfinished(folder) == [])


def test_uploads_of_the_same_file_at_once_are_one(server: Served, folder: Path, token: str) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(send(server, token, iter([_FIRST, *[_BLOCK] * 4]))[0]))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 201}
    assert len(list((folder / "files").glob("??/*"))) == 1
    assert unfinished(folder) == []


class Sink:
    def __init__(self) -> None:
        self.did: list[str] = []

    def write(self, chunk: memoryview) -> None:
        self.did.append(f"wrote {len(chunk)}")

    def abandon(self) -> None:
        self.did.append("abandoned")


def test_slow_clients_take_the_memory_that_their_bytes_fill(server: Served, folder: Path, token: str) -> None:
    before = server.forget_peak()
    slow = [begun(server, token, "Content-Length: 3000000", model(size=10_000)) for _ in range(60)]
    try:
        until(lambda: len(unfinished(folder)) == len(slow))
        assert server.peak_memory() - before < 30 << 20
    finally:
        for connection in slow:
            connection.close()
    until(lambda: unfinished(folder) == [])


def test_a_tenant_has_so_many_uploads_at_a_time_and_all_have_some_more(tables: Path, tmp_path: Path) -> None:
    shutil.copy(tables, tmp_path / "onnx-bisect.sqlite")
    mine, also_mine, another = token_in(tmp_path), token_in(tmp_path), token_in(tmp_path, "another")
    with served(tmp_path, tenant_uploads=3, open_uploads=4) as server:
        slow = [begun(server, token, "Content-Length: 3000000", model()) for token in (mine, also_mine, mine)]
        until(lambda: len(unfinished(tmp_path)) == 3)
        for asks in ("PUT /v1/models", "PUT /v1/files"):
            status, said = send(server, also_mine, iter([model(b"quick")]), asks)
            assert (status, b"3 open at a time" in said) == (429, True)
        assert send(server, another, iter([model(b"quick")]))[0] == 201
        slow.append(begun(server, another, "Content-Length: 3000000", model()))
        until(lambda: len(unfinished(tmp_path)) == 4)
        status, said = send(server, another, iter([model(b"quick")]))
        assert (status, b"Too many uploads are open" in said) == (503, True)
        for connection in slow:
            connection.close()
        until(lambda: send(server, mine, iter([model(b"quick")]))[0] == 200)


def _run(coroutine: Coroutine[object, object, object]) -> None:
    """`asyncio.run` in another thread: Playwright keeps a loop running in this one after tests of the site."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, coroutine).result()


async def _asked(sink: Sink, *chunks: bytes, pause: float) -> None:
    """Receive a body whose chunks come with pauses between them, and of which more would come."""
    left = list(chunks)

    async def slow() -> dict[str, object]:
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    request = Request({"type": "http", "method": "PUT", "headers": []}, slow)
    await receiving.receive(request, sink, lambda: sink.did.append("finished"))


@pytest.mark.parametrize("chunks", [[b"x" * 10] * 2, [b"x" * 1000, *[b"x" * 10] * 20]])
def test_who_sends_less_than_a_share_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, chunks: list[bytes]) -> None:
    """Nothing at all, or a little now and then."""
    monkeypatch.setattr(receiving, "_PATIENCE", 0.5)
    monkeypatch.setattr(receiving, "_SHARE", 100)
    sink = Sink()
    with pytest.raises(Problem, match="Less than 100 bytes came") as raised:
        _run(_asked(sink, *chunks, pause=10.0 if len(chunks) == 2 else 0.1))
    assert raised.value.status_code == 408
    assert sink.did == ["abandoned"]


def test_who_sends_its_share_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_PATIENCE", 1.0)
    monkeypatch.setattr(receiving, "_SHARE", 100)
    sink = Sink()
    _run(_asked(sink, *[b"x" * 50] * 8, pause=0.25))
    assert sink.did == ["wrote 400", "finished", "abandoned"]


def test_a_slow_disk_is_not_taken_for_a_client_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_PATIENCE", 0.05)
    left = [_BLOCK] * 6

    class Slow(Sink):
        def write(self, chunk: memoryview) -> None:
            time.sleep(0.2)
            super().write(chunk)

    async def quick() -> dict[str, object]:
        return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}

    sink = Slow()
    request = Request({"type": "http", "method": "PUT", "headers": []}, quick)
    _run(receiving.receive(request, sink, lambda: None))
    assert sink.did == ["wrote 2097152"] * 3 + ["abandoned"]


def test_a_request_that_is_cancelled_leaves_the_sink_to_nobody() -> None:
    """The thread that writes ends first: the sink must not be abandoned under it."""
    writing, go_on = threading.Event(), threading.Event()

    class Slow(Sink):
        def write(self, chunk: memoryview) -> None:
            writing.set()
            go_on.wait(60)
            super().write(chunk)

    sink = Slow()

    async def block() -> dict[str, object]:
        return {"type": "http.request", "body": _BLOCK, "more_body": True}

    async def cancelled() -> None:
        request = Request({"type": "http", "method": "PUT", "headers": []}, block)
        task = asyncio.create_task(receiving.receive(request, sink, lambda: None))
        await asyncio.to_thread(writing.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await task

    with pytest.raises(asyncio.CancelledError):
        _run(cancelled())
    assert sink.did == ["wrote 2097152", "abandoned"]


def test_a_process_that_only_takes_uploads_has_no_onnx_in_memory() -> None:
    """It is there from the first question about backends on; models are read by others."""
    program = "import sys, onnxbisect_api.app; print({'onnx', 'onnxruntime', 'numpy'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
