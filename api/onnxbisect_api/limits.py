"""Limits of the API: rates, concurrent requests of one kind, connections, and the time that a request's head takes.

Rates are counted in redis for all processes together, or else in this process; the others for each process. uvicorn
limits the size of a head and the pause between two requests, but no time before the first one.
"""

import asyncio
import logging
import math
import time
from asyncio import Semaphore, timeout
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any
from weakref import WeakValueDictionary

from limits import RateLimitItem, parse
from limits.errors import ConfigurationError, StorageError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import SlidingWindowCounterRateLimiter
from uvicorn.protocols.http.h11_impl import H11Protocol

from onnxbisect.errors import OptionError
from onnxbisect.language import english
from onnxbisect_api.errors.problems import Problem

_LOG = logging.getLogger(__name__)
_PREFIX = "onnxbisect:limits"
#: Seconds to wait for redis, and seconds without attempts after it did not answer.
_REDIS_SECONDS = 0.5
_PAUSE_SECONDS = 30.0


def counted_address(address: str) -> str:
    """The address itself, or for IPv6 its network, because providers give each client a whole network."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))
    return str(ip)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A rate limit. Limits with different `name` are counted separately."""

    name: str
    item: RateLimitItem


def rate(name: str, text: str) -> Rate:
    """Parse a limit such as 20/minute; OptionError for anything else."""
    try:
        return Rate(name=name, item=parse(text))
    except ValueError:
        raise OptionError(f"{text!r} is no rate for {name}: write one as 20/minute or 1000/hour.") from None


class Counters:
    """Counts requests by caller. Without redis, each process counts its own."""

    def __init__(self, redis_url: str | None) -> None:
        self._own = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._shared = _shared(redis_url) if redis_url is not None else None
        self._shared_after = 0.0

    def count(self, rate: Rate, who: str) -> None:
        """Count a request of the caller `who`; a 429 beyond the limit."""
        if self._shared is not None and time.monotonic() >= self._shared_after:
            try:
                _hit(self._shared, rate, who)
            except StorageError as error:
                _LOG.warning("redis does not count requests, so this process does: %s", error.storage_error)
                self._shared_after = time.monotonic() + _PAUSE_SECONDS
            else:
                return
        _hit(self._own, rate, who)


def _shared(url: str) -> SlidingWindowCounterRateLimiter | None:
    # the packages celery and limits have different URL schemes for sockets
    url = url.replace("redis+socket://", "redis+unix://", 1)
    patience = {"socket_timeout": _REDIS_SECONDS, "socket_connect_timeout": _REDIS_SECONDS}
    try:
        storage = storage_from_string(url, key_prefix=_PREFIX, wrap_exceptions=True, **patience)
    except ConfigurationError:
        return None
    return SlidingWindowCounterRateLimiter(storage)


def _hit(limiter: SlidingWindowCounterRateLimiter, rate: Rate, who: str) -> None:
    if not limiter.hit(rate.item, rate.name, who):
        ends = limiter.get_window_stats(rate.item, rate.name, who).reset_time
        seconds = max(math.ceil(ends - time.time()), 1)
        raise Problem(
            429,
            english(
                "Too many {name}: at most {item}. Try again in {seconds} s.",
                name=rate.name,
                item=rate.item,
                seconds=seconds,
            ),
            {"Retry-After": str(seconds)},
        )


_LATER = {"Retry-After": "5"}


class AtATime:
    """Limits on open requests: `of_tenant` of each tenant, `most` in all. Not thread-safe: use it in the event loop."""

    def __init__(self, name: str, *, of_tenant: int, most: int) -> None:
        self._name = name
        self._of_tenant = of_tenant
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, tenant: str) -> Iterator[None]:
        """Count a request while it is open; a 429 if the tenant has reached its limit, a 503 if all together have."""
        if self._open[tenant] >= self._of_tenant:
            detail = (
                f"Too many {self._name}: all tokens of a tenant may have {self._of_tenant} open at a time. "
                f"Wait until one has ended."
            )
            raise Problem(429, detail, _LATER)
        if self._open.total() >= self._most:
            raise Problem(
                503, english("Too many {name} are open: try again in a few seconds.", name=self._name), _LATER
            )
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]


#: Seconds from the beginning of a connection, or from the last answer, to the end of the next request's head.
HEAD_SECONDS = 10.0
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connections:
    """The connections of one server, counted by client address. Not thread-safe: use it in the server's event loop.

    At the limit, the oldest idle connection is closed for a new one; a connection whose request is being answered is
    kept. `is_proxy` recognises trusted proxies, to which the limit per address does not apply.
    """

    def __init__(self, *, most: int, most_of_address: int, is_proxy: Callable[[str], bool]) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._is_proxy = is_proxy
        self._by_address: dict[str, dict[BoundedProtocol, None]] = {}
        self._count = 0

    def admit(self, connection: "BoundedProtocol", address: str) -> bool:
        """Count the connection, at the limit in place of an idle one; False if it must be refused."""
        same = self._by_address.get(counted_address(address), {})
        if len(same) >= self._most_of_address and not self._is_proxy(address):
            gives_way = _oldest_waiting(same)
        elif self._count >= self._most:
            gives_way = next(
                filter(None, map(_oldest_waiting, sorted(self._by_address.values(), key=len, reverse=True))), None
            )
        else:
            self._add(connection, address)
            return True
        if gives_way is None:
            return False
        gives_way.give_way()
        self._add(connection, address)
        return True

    def remove(self, connection: "BoundedProtocol", address: str) -> None:
        """Stop counting the connection; repeated calls have no effect."""
        key = counted_address(address)
        same = self._by_address.get(key, {})
        if connection in same:
            del same[connection]
            self._count -= 1
            if not same:
                del self._by_address[key]

    def _add(self, connection: "BoundedProtocol", address: str) -> None:
        self._by_address.setdefault(counted_address(address), {})[connection] = None
        self._count += 1


def _oldest_waiting(connections: dict["BoundedProtocol", None]) -> "BoundedProtocol | None":
    return next((each for each in connections if each.waits), None)


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with the limits of `Connections`."""

    def __init__(self, *, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._bounds = connections
        self._address = ""
        self._head: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether the connection is idle: no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def give_way(self) -> None:
        """Close the connection, and stop counting it."""
        self._bounds.remove(self, self._address)
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        """Count the new connection, or refuse it."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client is not None else ""
        if self._bounds.admit(self, self._address):
            self._watch_head()
        else:
            transport.write(_REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._bounds.remove(self, self._address)
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request; a closing connection ignores them."""
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch_head()

    def on_response_complete(self) -> None:
        """Start the time limit for the next request."""
        super().on_response_complete()
        self._watch_head()

    def _watch_head(self) -> None:
        """Start the time limit while the connection is idle, and stop it once a request's head has arrived."""
        if not self.waits or self.transport.is_closing():
            self._forget_head()
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self.give_way)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


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
