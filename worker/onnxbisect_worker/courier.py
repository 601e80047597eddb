"""Hands of their own for webhooks: a receiver that is slow keeps nobody from anything else.

Sending is waiting. On the queue's own hands, of which there are as many as compilers and coordinators need, a few dead
receivers would stop all jobs for as long as they have messages.
"""

import contextlib
import logging
import queue
import time
from threading import Lock, Thread

from onnxbisect_worker.delivering import deliver
from onnxbisect_worker.service import Service

_HANDS = 8
#: What waits beyond that is dropped: the reconciler rings for it again.
_WAITING = 256

log = logging.getLogger(__name__)


class Courier:
    """Threads that send. They begin when they are needed, so a process may fork before."""

    def __init__(self, hands: int = _HANDS) -> None:
        self._hands = hands
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._closed = False
        self._waiting: queue.Queue[tuple[Service, str] | None] = queue.Queue(_WAITING)

    def send(self, service: Service, delivery_id: str) -> None:
        """Send it soon, if nobody else does."""
        with self._lock:
            if self._closed or self._waiting.full():
                return
            self._waiting.put_nowait((service, delivery_id))
            if len(self._threads) < self._hands:
                thread = Thread(target=self._run, name="courier", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """Begin nothing more. What is under way has so many seconds; then it is left, and will be sent again."""
        with self._lock:
            self._closed = True
            until = time.monotonic() + seconds
            with contextlib.suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
            for _ in self._threads:
                self._waiting.put_nowait(None)
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                deliver(*work)
            except Exception as error:  # most likely the database is away: the reconciler rings once it is back
                log.warning("webhook %s was left: %s", work[1], type(error).__name__)
