"""Uploads: from the network to the disk, a megabyte at a time, however large they are.

The event loop reads while a thread writes. A slow client holds no thread, only a file that nobody sees.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.requests import Request

from onnxbisect_api.problems import Problem

_BLOCK = 1 << 20
#: A client that sends nothing for so many seconds is gone, or holds the connection on purpose.
_PATIENCE = 60.0
#: Threads that write at a time: not those that answer other requests, which a slow disk must not stop.
_WRITERS = 8

_limiter = RunVar[CapacityLimiter]("writers of uploads")
T = TypeVar("T")


class Sink(Protocol):
    """Where the bytes of a request go. It is used by one thread at a time."""

    def write(self, chunk: bytes) -> None:
        """What comes next. What it raises ends the upload."""

    def abandon(self) -> None:
        """Nothing more comes; leave nothing behind, unless all of it was finished."""


async def receive(request: Request, sink: Sink, finish: Callable[[], T]) -> T:
    """All of the request's body into the sink, then `finish` in a thread. In the end the sink is abandoned."""
    try:
        await _pour(request.stream(), sink.write)
        return await _in_thread(finish)
    finally:
        sink.abandon()


async def _pour(body: AsyncIterator[bytes], write: Callable[[bytes], None]) -> None:
    writing: asyncio.Task[None] | None = None
    try:
        async with aclosing(_blocks(body)) as blocks:
            async for block in blocks:
                if writing is not None:
                    await writing
                writing = asyncio.create_task(_in_thread(write, block))
        if writing is not None:
            await writing
    finally:
        if writing is not None:
            await asyncio.wait([writing])  # the sink is the thread's until then


async def _blocks(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same bytes in few pieces: each costs a change of threads."""
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(_PATIENCE):
                chunk = await anext(body, None)
        except TimeoutError:
            raise Problem(408, f"Nothing has come for {_PATIENCE:g} seconds: upload it again.") from None
        if chunk is None:
            break
        chunks.append(chunk)
        size += len(chunk)
        if size >= _BLOCK:
            yield b"".join(chunks)
            chunks.clear()
            size = 0
    if chunks:
        yield b"".join(chunks)


async def _in_thread(function: Callable[..., T], *args: object) -> T:
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(_WRITERS)
        _limiter.set(limiter)
    running = asyncio.create_task(to_thread.run_sync(function, *args, limiter=limiter))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # A thread cannot be cancelled: what it uses is its own until it ends.
        await asyncio.wait([running])
        raise
