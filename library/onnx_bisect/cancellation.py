"""A handle that cancels a running diagnosis."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event


class Cancellation:
    """Pass it to `diagnose`, and call `cancel` from another thread or a signal handler.

    A handle that is passed to several calls cancels all of them, including calls that start after `cancel`.
    """

    def __init__(self) -> None:
        self._cancelled = Event()
        self._stops: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Kill running compiles and end the search; `diagnose` returns what it knows. Further calls have no effect."""
        self._cancelled.set()
        for stop in tuple(self._stops):
            stop()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While the context is open, `cancel` calls `stop`. If it was called before, entering calls `stop`."""
        self._stops.append(stop)
        try:
            if self.cancelled:
                stop()
            yield
        finally:
            self._stops.remove(stop)
