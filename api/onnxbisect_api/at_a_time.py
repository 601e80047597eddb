"""Limits a token's concurrent requests of one kind. Each process of the API counts its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from onnxbisect_api.problems import Problem

_LATER = {"Retry-After": "5"}


class AtATime:
    """A limit on concurrent requests of each token. Not thread-safe: use it in the event loop."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, token_id: str) -> Iterator[None]:
        """Count a request while it is open; a 429 if the token has reached the limit."""
        if self._open[token_id] >= self._most:
            detail = f"Too many {self._name}: a token may have {self._most} open at a time. Wait until one has ended."
            raise Problem(429, detail, _LATER)
        self._open[token_id] += 1
        try:
            yield
        finally:
            self._open[token_id] -= 1
            if not self._open[token_id]:
                del self._open[token_id]
