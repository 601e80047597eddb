"""Uploads: from the network to the disk, two megabytes at a time, however large they are.

The event loop reads while one thread writes and another one makes the digest. A slow client holds no thread, only
the memory that its bytes fill, two megabytes at most, and a file that nobody sees.
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
#: A client that does not send so many bytes in so many seconds is gone, or holds the connection on purpose.
_PATIENCE = 60.0
_SHARE = 480 << 10
#: Uploads that are written at a time.
_AT_A_TIME = 8

# Threads of their own: not those that answer other requests, which a slow disk must not stop. Who writes waits for
# digests, so that these have others.
_WRITERS = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="upload")
#: Where files make their digests while they are written.
DIGESTS = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="digest")

T = TypeVar("T")


class Sink(Protocol):
    """Where the bytes of a request go. It is used by one thread at a time."""

    def write(self, chunk: memoryview) -> None:
        """What comes next; when the next write has returned, other bytes are there. What it raises ends the upload."""

    def abandon(self) -> None:
        """Nothing more comes; leave nothing behind, unless all of it was finished."""


async def receive(request: Request, sink: Sink, finish: Callable[[], T]) -> T:
    """All of the request's body into the sink, then `finish` in a thread. In the end the sink is abandoned."""
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
            # A thread cannot be cancelled: what it uses is its own until it ends.
            await asyncio.wait([working])
        sink.abandon()


async def _blocks(body: AsyncIterator[bytes]) -> AsyncGenerator[memoryview, None]:
    """The same bytes in few pieces: each costs a change of threads."""
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
                        patience.reschedule(None)  # from here on it is not the client that is waited for
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
    """For a block to be filled, one to be written, and one whose digest is made. The same again and again: fresh memory
    costs the kernel as much time as the network does. Mapped, it takes no more than was written to it, and the kernel
    gets all of it back; the heap would keep it.
    """
    made = []
    for _ in range(3):
        mapped = mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(mmap.MADV_NOHUGEPAGE)  # of which the first byte would take all of the block
        made.append(memoryview(mapped))
        yield made[-1]
    yield from cycle(made)
