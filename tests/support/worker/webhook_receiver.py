"""Receivers of webhooks: one that keeps what arrives and answers as it is told, and one that says any bytes."""

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

from standardwebhooks import Webhook


@dataclass(frozen=True, kw_only=True)
class Message:
    """What arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    arrived: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        """The payload, once the library of the specification has verified it as any receiver would when it arrives:
        it takes nothing that is five minutes old, and a storm is longer.
        """
        arrived = self.arrived

        class Then(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> "Then":
                return cls.fromtimestamp(arrived.timestamp(), tz)

        with patch("standardwebhooks.webhooks.datetime", Then):
            payload: dict[str, Any] = Webhook(secret).verify(self.body, self.headers)
        return payload


@dataclass
class Receiver:
    """Listens on `port` from `up` to `down`; each answer is the next of `answers`, and 204 once they are used up.

    With `answer_bodies`, each answer has the next of them, and 200 where `answers` are used up.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: str = ""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    answer_bodies: list[bytes] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/hook?a=1"

    def up(self) -> None:
        self._server = ThreadingHTTPServer((self.host, self.port), self._handler())
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.messages.append(Message(path=self.path, headers=headers, body=body))
                said = receiver.answer_bodies.pop(0) if receiver.answer_bodies else b""
                usual = (200, {"Content-Length": str(len(said))}) if said else (204, {})
                status, wanted = receiver.answers.pop(0) if receiver.answers else usual
                self.send_response(status)
                for name, value in wanted.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *words: object) -> None:
                pass

        return Handler


@contextlib.contextmanager
def saying(chunks: Callable[[], Iterable[bytes]], pause: float = 0.0) -> Iterator[str]:
    """The URL of one that takes a request and says these chunks, until it has said all or nobody listens."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def say(peer: socket.socket) -> None:
            with peer, contextlib.suppress(OSError):
                request = b""
                while not request.endswith(b"}"):
                    request += (heard := peer.recv(100_000))
                    if not heard:
                        return
                for chunk in chunks():
                    peer.sendall(chunk)
                    if stopped.wait(pause):
                        return

        def serve() -> None:
            with contextlib.suppress(OSError):  # closed
                while True:
                    threading.Thread(target=say, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            stopped.set()
            listening.shutdown(socket.SHUT_RDWR)


def dripping(first: bytes, then: bytes) -> Callable[[], Iterable[bytes]]:
    """`first`, then `then` for ever."""
    return lambda: itertools.chain([first], itertools.repeat(then))
