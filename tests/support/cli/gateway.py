"""A gateway before a server that is troubled: it asks clients to come again, and drops connections."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from threading import Thread

import httpx2

#: What travels for long.
_TROUBLED = re.compile(r"/v1/models|/v1/jobs/[^/]+/(culprits|model-explorer)/.*")


class Gateway(ThreadingHTTPServer):
    """The first request for each address of a file is told to come again, or cut off in the middle of its answer, in
    turn. What is asked of an address with `forbidden` in it is refused.
    """

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.forbidden = "nothing"
        self.troubles: dict[str, str] = {}
        self._next = cycle(("busy", "cut"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def trouble(self, path: str) -> str:
        if self.forbidden in path:
            return "forbidden"
        if path in self.troubles or not _TROUBLED.fullmatch(path):
            return ""
        self.troubles[path] = next(self._next)
        return self.troubles[path]


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def _pass_on(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        trouble = self.server.trouble(self.path)
        if trouble in ("busy", "forbidden"):
            self.send_response(429 if trouble == "busy" else 403)
            self.end_headers()
            return
        address = self.server.behind + self.path
        answer = httpx2.request(self.command, address, content=sent, headers=dict(self.headers), timeout=60)
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content[: len(answer.content) // 2] if trouble == "cut" else answer.content)

    do_GET = do_POST = _pass_on  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def gateway(behind: str) -> Iterator[Gateway]:
    with Gateway(behind) as found:
        thread = Thread(target=found.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()
