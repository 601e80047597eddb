"""The handle by which a diagnosis is cancelled from outside of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event


class Cancellation:
    """Give it to `diagnose`, and call `cancel` from another thread or a signal handler.

    One handle may be given to several calls; it cancels all of them, and those that are made later.
    """

    def __init__(self) -> None:
        self._cancelled = Event()
        self._stops: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """End the search: compiles are killed, and `diagnose` returns what is known. Again changes nothing."""
        self._cancelled.set()
        for stop in tuple(self._stops):
            stop()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within, `cancel` calls `stop`; at once where it was called before."""
        self._stops.append(stop)
        try:
            if self.cancelled:
                stop()
            yield
        finally:
            self._stops.remove(stop)
