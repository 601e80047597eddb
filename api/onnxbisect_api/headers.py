"""Security headers of every response: no sniffing, framing, scripts or caching unless a route sets its own."""

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

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
                    headers["location"] = _without_host(headers["location"], Headers(scope=scope).get("host", ""))
            await send(message)

        await self._app(scope, receive, sent)


def _without_host(location: str, host: str) -> str:
    parts = urlsplit(location)
    if parts.netloc != host or not parts.path.startswith("/") or parts.path.startswith("//"):
        return location
    return urlunsplit(("", "", *parts[2:]))
