"""Headers of responses: security headers, and strong entity tags, so that unchanged content is not sent again."""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import urlsplit, urlunsplit

from fastapi import Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
#: Browsers that receive this header send requests to this host only over TLS, for a year.
_HSTS = "max-age=31536000"


class SecurityHeaders:
    """Adds headers that a route has not set. With `https`, browsers are told to use only TLS.

    Redirects to this host become relative, because behind a proxy the scheme is not known for certain.
    """

    def __init__(self, app: ASGIApp, *, https: bool) -> None:
        self._app = app
        self._all = {**SECURITY, "Strict-Transport-Security": _HSTS} if https else SECURITY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._all.items():
                    headers.setdefault(name, value)
                if 300 <= message["status"] < 400 and "location" in headers:
                    parts = urlsplit(headers["location"])
                    is_here = parts.netloc == Headers(scope=scope).get("host", "")
                    if is_here and parts.path.startswith("/") and not parts.path.startswith("//"):
                        headers["location"] = urlunsplit(("", "", *parts[2:]))
            await send(message)

        await self._app(scope, receive, sent)


def tag_of(*parts: object) -> str:
    """The tag for content made of these parts by this version of the program."""
    text = "\n".join([version("onnx-bisect"), *map(str, parts)])
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def unchanged(request: Request, headers: Mapping[str, str]) -> Response | None:
    """A 304 if the client has the content with the tag in these headers."""
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    same = headers["ETag"] in known or known == ["*"]
    return Response(status_code=304, headers=dict(headers)) if same else None
