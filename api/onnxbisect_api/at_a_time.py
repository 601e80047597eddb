"""Limits the concurrent requests of one kind, by tenant and in all. Each process of the API counts its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from onnxbisect_api.problems import Problem

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
            raise Problem(503, f"Too many {self._name} are open: try again in a few seconds.", _LATER)
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]
