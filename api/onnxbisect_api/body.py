"""How large a request's body may be. Uploads count for themselves; anything else is a small document."""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxbisect_api.problems import Problem, answer

_LIMIT = 1 << 20
_DETAIL = f"A request's body may have {_LIMIT:,} bytes here: models are uploaded with PUT /v1/models."


class BodyLimit:
    """413 beyond the limit, before anything is read where the length is told, else as soon as it is passed.

    The framework's own limit would answer in plain text.
    """

    def __init__(self, app: ASGIApp, *, uploads: Collection[str]) -> None:
        self._app = app
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["path"] in self._uploads:
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told) > _LIMIT:
            await answer(413, _DETAIL)(scope, receive, send)
            return
        size = 0

        async def received() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > _LIMIT:
                raise Problem(413, _DETAIL)
            return message

        await self._app(scope, received, send)
