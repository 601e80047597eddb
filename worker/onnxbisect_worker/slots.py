"""Worker slots: threads that claim a piece of work, do it, and claim the next one.

The database is asked every two seconds, and at once when something is notified of. Of the slots that have nothing to do
one asks; when it has found work, the next one goes on asking.
"""

import logging
import time
from collections.abc import Callable
from threading import Event, Lock, Thread

#: Seconds between two claims without a notification: how much a lost one costs at most.
POLL_SECONDS = 2.0

Work = Callable[[], object]

log = logging.getLogger(__name__)


class Slots:
    """So many threads. `claim` returns work, or None where there is none; it is called by one thread at a time."""

    def __init__(self, name: str, count: int, claim: Callable[[], Work | None]) -> None:
        self._claim = claim
        self._claiming = Lock()
        self._woken = Event()
        self._stopping = Event()
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)]

    def start(self) -> None:
        """Begin to claim."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """There may be work: claim now."""
        self._woken.set()

    def stop(self, seconds: float) -> None:
        """Claim nothing more, and wait for so long until all that was claimed is done."""
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
            except Exception as error:  # most likely the database is away: what was claimed runs out, and comes back
                log.warning("work was left: %s", type(error).__name__, exc_info=_in_detail())
            self.wake()  # what had to wait for this slot

    def _next(self) -> Work | None:
        """Work, when there is some; None where this is to stop."""
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                work = self._claim()
            except Exception as error:  # as above
                log.warning("nothing can be claimed: %s", type(error).__name__, exc_info=_in_detail())
                work = None
            if work is not None:
                return work
            self._woken.wait(POLL_SECONDS)
        return None


def _in_detail() -> bool:
    return log.isEnabledFor(logging.DEBUG)
