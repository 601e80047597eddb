"""Worker slots: threads that claim a piece of work, do it, and claim the next one.

The database is asked every two seconds, and at once after a notification. One idle slot at a time asks; when it has
found work, the next idle one takes over.
"""

import logging
import time
from collections.abc import Callable
from threading import Event, Lock, Thread

#: Seconds between claims without a notification: the most that a lost one costs.
POLL_SECONDS = 2.0

Work = Callable[[], object]

log = logging.getLogger(__name__)


class Slots:
    """`count` threads. `claim` returns work or None; one thread at a time calls it."""

    def __init__(self, name: str, count: int, claim: Callable[[], Work | None]) -> None:
        self._claim = claim
        self._claiming = Lock()
        self._woken = Event()
        self._stopping = Event()
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)]

    def start(self) -> None:
        """Start to claim."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Claim now, because there may be work."""
        self._woken.set()

    def stop(self, seconds: float) -> None:
        """Claim nothing more, and wait up to `seconds` until all claimed work is done."""
        self._stopping.set()
        self.wake()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(until - time.monotonic(), 0))

    def _run(self) -> None:
        while True:
            with self._claiming:
                work = self._next()
            if work is None:
                return
            try:
                work()
            except Exception as error:
                # Most likely the database is away: the lease expires, and the work is claimed again.
                log.warning("work was left: %s", type(error).__name__, exc_info=_in_detail())
            self.wake()  # for work that waited for this slot

    def _next(self) -> Work | None:
        """The next work; None if this slot must stop."""
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                work = self._claim()
            except Exception as error:
                log.warning("nothing can be claimed: %s", type(error).__name__, exc_info=_in_detail())
                work = None
            if work is not None:
                return work
            self._woken.wait(POLL_SECONDS)
        return None


def _in_detail() -> bool:
    return log.isEnabledFor(logging.DEBUG)
