"""Uploads: from the network to the disk in blocks of two megabytes.

The event loop reads while one thread writes and another one computes the digest. A slow client holds no thread, only
the memory of its bytes, two megabytes at most, and an invisible file.
"""

import asyncio
import mmap
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import cycle
from typing import Protocol, TypeVar

from starlette.requests import Request

from onnxbisect_api.problems import Problem

_BLOCK = 2 << 20
#: Seconds for a block; a slower client counts as gone, or as holding the connection on purpose.
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
    """A receiver of a request's bytes. It is used by one thread at a time."""

    def write(self, chunk: memoryview) -> None:
        """Append bytes; the memory is reused when the next write has returned. An exception ends the upload."""

    def abandon(self) -> None:
        """Called at the end: remove everything unless it was finished."""


async def receive(request: Request, sink: Sink, finish: Callable[[], T]) -> T:
    """Read the request's body into the sink, then call `finish` in a thread. Finally the sink is abandoned."""
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
    """The same bytes in few blocks, because each costs a change of threads."""
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
                        patience.reschedule(None)  # the client is no longer the cause of waiting
                        yield block
                        patience.reschedule(now() + _PATIENCE)
                        block, size = next(memory), 0
    except TimeoutError:
        raise Problem(
            408, f"Less than {_SHARE:,} bytes came in {_PATIENCE:g} seconds: upload it again, over a faster line."
        ) from None
    if size:
        yield block[:size]


def _memory() -> Iterator[memoryview]:
    """Reused blocks: one to fill, one to write, and one to digest.

    Fresh memory costs the kernel as much time as the network does. Mapped memory is returned completely, unlike the
    heap.
    """
    made = []
    for _ in range(3):
        mapped = mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(mmap.MADV_NOHUGEPAGE)  # otherwise the first byte would allocate the whole block
        made.append(memoryview(mapped))
        yield made[-1]
    yield from cycle(made)
