"""Limits of a request's body: size and time. Uploads have their own; all other bodies are small documents."""

import asyncio
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxbisect_api.problems import Problem, answer

#: Most bytes of a document.
DOCUMENT_BYTES = 1 << 20
#: Most seconds to receive a document.
DOCUMENT_SECONDS = 30.0
_DETAIL = f"A request's body may have {DOCUMENT_BYTES:,} bytes here: models are uploaded with PUT /v1/models."


class BodyLimit:
    """Middleware that limits bodies: 413 for one that is too large, 408 for one that takes too long.

    A declared length is checked before the body is read. The framework's own limit is not used, because its error is
    plain text.
    """

    def __init__(self, app: ASGIApp, *, uploads: Collection[str], forms: Collection[str]) -> None:
        self._app = app
        self._uploads = uploads
        self._forms = forms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_upload(scope):
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > DOCUMENT_BYTES:
            await answer(413, _DETAIL)(scope, receive, send)
            return
        size, whole = 0, False
        until = asyncio.get_running_loop().time() + DOCUMENT_SECONDS

        async def received() -> Message:
            nonlocal size, whole
            if whole:  # after the body, the only message is the disconnect, which may come at any time
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, f"The body did not come within {DOCUMENT_SECONDS:g} seconds: try again.") from None
            whole = not message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > DOCUMENT_BYTES:
                raise Problem(413, _DETAIL)
            return message

        await self._app(scope, received, send)

    def _is_upload(self, scope: Scope) -> bool:
        return scope["path"] in self._uploads or (scope["path"] in self._forms and is_form(scope))


def is_form(scope: Scope) -> bool:
    """Whether the request's body is a form with files."""
    return Headers(scope=scope).get("content-type", "").lower().startswith("multipart/form-data")
