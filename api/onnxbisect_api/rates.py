"""Rate limits, counted in redis for all processes together, or else in this process."""

import logging
import math
import time
from dataclasses import dataclass

from limits import RateLimitItem, parse
from limits.errors import ConfigurationError, StorageError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import SlidingWindowCounterRateLimiter

from onnxbisect.errors import OptionError
from onnxbisect_api.problems import Problem

_LOG = logging.getLogger(__name__)
_PREFIX = "onnxbisect:limits"
#: Seconds to wait for redis, and seconds without attempts after it did not answer.
_REDIS_SECONDS = 0.5
_PAUSE_SECONDS = 30.0


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
                self._leave_alone(error)
            else:
                return
        _hit(self._own, rate, who)

    def _leave_alone(self, error: StorageError) -> None:
        _LOG.warning("redis does not count requests, so this process does: %s", error.storage_error)
        self._shared_after = time.monotonic() + _PAUSE_SECONDS


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
            429, f"Too many {rate.name}: at most {rate.item}. Try again in {seconds} s.", {"Retry-After": str(seconds)}
        )
