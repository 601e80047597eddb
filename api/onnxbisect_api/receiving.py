"""Writes uploads from the network to the disk in blocks of two megabytes.

The event loop reads while one thread writes and another one computes the digest. A slow client occupies no thread, only
a block of memory and an invisible file.
"""

import asyncio
import mmap
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import cycle
from typing import Protocol, TypeVar

from starlette.requests import Request

from onnxbisect.language import english
from onnxbisect_api.problems import Problem

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
