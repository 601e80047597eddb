"""HTTP methods that FastAPI lacks: OPTIONS, HEAD for each GET, and a 405 that lists all methods of the URL."""

from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ROUTED = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")


class Methods:
    """Middleware that answers OPTIONS and HEAD, and completes the `Allow` header of 405.

    FastAPI adds no HEAD to GET, and its `Allow` names only the method of one route.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and (allow := self._allow(scope)):
            await Response(status_code=204, headers={"Allow": allow})(scope, receive, send)
        elif scope["method"] == "HEAD" and not self._has(scope, "HEAD") and self._has(scope, "GET"):
            await self._answer_head(scope, receive, send)
        else:
            await self._app(scope, receive, self._naming_all(scope, send))

    def _has(self, scope: Scope, method: str) -> bool:
        return any(route.matches({**scope, "method": method})[0] is Match.FULL for route in self._routes)

    def _allow(self, scope: Scope) -> str:
        """The value of `Allow` for the request's path; empty if there is no route."""
        found = {method for method in _ROUTED if self._has(scope, method)}
        if "GET" in found:
            found.add("HEAD")
        return ", ".join(sorted({*found, "OPTIONS"})) if found else ""

    def _naming_all(self, scope: Scope, send: Send) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 405:
                MutableHeaders(scope=message)["Allow"] = self._allow(scope)
            await send(message)

        return sent

    async def _answer_head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the head of the GET response and no body; a stream ends after its head."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["method"] = "HEAD"  # so that the server expects no body
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        scope["method"] = "GET"
        await self._app(scope, receive, sent)
