"""Receive bodies of requests: limits of size and time, uploads written to the disk, and a tenant's remaining quota."""

import asyncio
import mmap
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol, TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxbisect.language import english
from onnxbisect_api.errors.problems import Problem, answer
from onnxbisect_db import uploads
from onnxbisect_db.errors import QuotaError, TooLargeError
from onnxbisect_service.service import Service

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
        if scope["type"] != "http" or (
            scope["path"] in self._uploads or (scope["path"] in self._forms and is_form(scope))
        ):
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


def is_form(scope: Scope) -> bool:
    """Whether the request's body is a form with files."""
    return Headers(scope=scope).get("content-type", "").lower().startswith("multipart/form-data")


_BLOCK = 2 << 20
#: Seconds in which a client must send a share of a block; slower uploads are ended to free their connections.
_PATIENCE = 60.0
_SHARE = 480 << 10
#: Most uploads written at a time.
_AT_A_TIME = 8

# Separate threads, so that a slow disk does not block other requests. Writers wait for digests, so these have their
# own.
_WRITERS = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="upload")
#: The executor for digests of files that are being written.
DIGESTS = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="digest")

T = TypeVar("T")


class Sink(Protocol):
    """A receiver of a request's bytes, called by one thread at a time."""

    def write(self, chunk: memoryview) -> None:
        """Append bytes, whose memory is valid until the next write has returned. An exception ends the upload."""

    def abandon(self) -> None:
        """Called at the end of every upload: delete what was written unless the upload was finished."""


async def receive(request: Request, sink: Sink, finish: Callable[[], T]) -> T:
    """Write the request's body to the sink, then return the result of `finish`; both run in threads.

    The sink is always abandoned at the end, also after an error.
    """
    loop = asyncio.get_running_loop()
    working: asyncio.Future[None] | asyncio.Future[T] | None = None
    try:
        async with aclosing(_blocks(request.stream())) as blocks:
            async for block in blocks:
                if working is not None:
                    await asyncio.shield(working)
                working = loop.run_in_executor(_WRITERS, sink.write, block)
        if working is not None:
            await asyncio.shield(working)
        working = finishing = loop.run_in_executor(_WRITERS, finish)
        return await asyncio.shield(finishing)
    finally:
        if working is not None:
            # A thread cannot be cancelled, so its resources stay in use until it ends.
            await asyncio.wait([working])
        sink.abandon()


async def _blocks(body: AsyncIterator[bytes]) -> AsyncGenerator[memoryview, None]:
    """The body in large blocks, because each block costs a switch of threads; a 408 if the client is too slow."""
    memory = _memory()
    block, size = next(memory), 0
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(_PATIENCE) as patience:
            came = 0
            async for chunk in body:
                came += len(chunk)
                if came >= _SHARE:
                    came = 0
                    patience.reschedule(now() + _PATIENCE)
                rest = memoryview(chunk)
                while rest:
                    took = min(len(rest), _BLOCK - size)
                    block[size : size + took] = rest[:took]
                    size += took
                    rest = rest[took:]
                    if size == _BLOCK:
                        patience.reschedule(None)  # waiting for the disk does not count against the client
                        yield block
                        patience.reschedule(now() + _PATIENCE)
                        block, size = next(memory), 0
    except TimeoutError:
        raise Problem(
            408,
            english(
                "Less than {share} bytes came in {patience} seconds: upload it again, over a faster line.",
                share=f"{_SHARE:,}",
                patience=f"{_PATIENCE:g}",
            ),
        ) from None
    if size:
        yield block[:size]


def _memory() -> Iterator[memoryview]:
    """Three blocks in turn: one to fill, one to write, and one to digest.

    They are reused, because fresh memory costs the kernel as much time as the network does. They are mapped, because
    mapped memory is returned to the system completely, unlike the heap.
    """
    made = []
    for _ in range(3):
        mapped = mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(mmap.MADV_NOHUGEPAGE)  # otherwise the first byte would allocate the whole block
        made.append(memoryview(mapped))
        yield made[-1]
    yield from cycle(made)


@dataclass(frozen=True, kw_only=True)
class UploadQuota:
    """A tenant's remaining quota: `largest` is the limit of one file, `left` that of all further files, in bytes."""

    largest: int
    left: int

    @property
    def limit(self) -> int:
        """The largest possible size of the next file in bytes."""
        return min(self.largest, self.left)

    def demand(self, size: int) -> None:
        """QuotaError if files of `size` bytes in total exceed the quota."""
        if size > self.left:
            raise QuotaError(
                f"You have {self.left:,} bytes left to keep uploads in: delete models and files that you do not need."
            )


def upload_quota(service: Service, tenant: str) -> UploadQuota:
    """The tenant's current quota. Concurrent uploads count only once they are complete."""
    most = service.settings.tenant_bytes
    with service.database.session() as session:
        kept = uploads.kept_bytes(session, tenant)
    return UploadQuota(largest=service.settings.upload_bytes, left=max(most - kept, 0))


def demand_length(request: Request, quota: UploadQuota) -> None:
    """Refuse an upload whose declared length is too large, before it is read."""
    length = int(request.headers.get("content-length", "0"))
    if length > quota.largest:
        raise TooLargeError(f"The file is larger than {quota.largest:,} bytes, which is the most that is taken here.")
    quota.demand(length)


@contextmanager
def quota_named(quota: UploadQuota) -> Iterator[None]:
    """Within the context, a TooLargeError becomes a QuotaError if the quota was the limit."""
    try:
        yield
    except TooLargeError:
        if quota.limit < quota.largest:
            quota.demand(quota.limit + 1)
        raise
