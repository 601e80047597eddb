"""How long a hand goes on by itself, before the queue says what is next."""

import time

from sqlalchemy.exc import InterfaceError, OperationalError

from onnxbisect_db import queues
from onnxbisect_worker.place import Place

#: A ring on the way through the queue leaves a slot empty for as long as a short compile takes, or three. But celery
#: looks after its processes between two tasks.
STINT_SECONDS = 60.0
#: How often a hand looks whether this worker is waited for with something else.
_LOOK_EVERY = 3.0


class Stint:
    """Probes of one backend for so many seconds, and less where the worker is waited for with a model to be read, or
    with probes of another backend.
    """

    def __init__(self, place: Place, backend: str, seconds: float) -> None:
        self._place = place
        self._backend = backend
        self._over_at = time.monotonic() + seconds
        self._look_at = time.monotonic() + min(_LOOK_EVERY, seconds)
        self._over = False

    def is_over(self) -> bool:
        """Whether no other probe is to be taken. Now and then this asks the database."""
        at = time.monotonic()
        if at >= self._look_at and not self._over:
            self._look_at = at + _LOOK_EVERY
            self._over = at >= self._over_at or self._wanted_elsewhere()
        return self._over or self._place.stopping.is_set()

    def end(self) -> None:
        """Take no other probe."""
        self._over = True

    def _wanted_elsewhere(self) -> bool:
        try:
            with self._place.service.database.session() as session:
                return queues.others_wait(session, self._backend, self._place.backends)
        except (OperationalError, InterfaceError):  # it is away: an answer of hours is still to be written
            return False
