"""Slow requests take turns, so that they never occupy the threads that answer other requests from the database.

Handlers run in the forty threads of anyio. Those that read models, or files that may be in a bucket, first wait for a
turn in the event loop, without a thread. All turns together are less than half of the threads.
"""

from asyncio import Semaphore, timeout
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from onnxbisect_api.problems import Problem

#: Seconds that a request waits for its turn.
_PATIENCE = 20.0


class Turns:
    """Turns of requests of one kind: `most` at a time, of them `of_tenant` of one tenant, the oldest request first.

    Not thread-safe: use it in the event loop. Each process of the API has its own.
    """

    def __init__(self, name: str, *, of_tenant: int, most: int) -> None:
        self._name = name
        self._of_tenant = of_tenant
        self._all = Semaphore(most)
        self._tenants: WeakValueDictionary[str, Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it; a 503 if there is none in time."""
        own = self._tenants.setdefault(tenant, Semaphore(self._of_tenant))
        async with AsyncExitStack() as held:
            try:
                async with timeout(_PATIENCE):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                detail = f"The service is busy with other {self._name}: try again in a few seconds."
                raise Problem(503, detail, {"Retry-After": "5"}) from None
            yield
