"""The current time: one clock for all users of a database, because workers' clocks differ."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from onnxbisect_db.columns import Moment

#: Seconds between reads of the server's clock.
_GOOD_FOR = 10.0
#: A clock that also counts while the machine sleeps, if the system has one.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Clock = Callable[[Session], datetime]


class ServerClock:
    """PostgreSQL's clock, read every few seconds and extrapolated with this machine's clock.

    Reading it each time would cost every transaction a round trip. Threads may share it; it is late by one trip, and
    never early.
    """

    def __init__(self) -> None:
        self._known: tuple[datetime, float] | None = None

    def __call__(self, session: Session) -> datetime:
        """The current time; `session` reads the clock if needed."""
        known = self._known
        since = 0.0 if known is None else time.clock_gettime(_COUNTER) - known[1]
        if known is not None and since < _GOOD_FOR:
            return known[0] + timedelta(seconds=since)
        # `now()` would be the start of the transaction
        asked = session.scalars(select(func.clock_timestamp(type_=Moment()))).one()
        self._known = asked, time.clock_gettime(_COUNTER)
        return asked


def own_clock(_session: Session) -> datetime:
    """This machine's clock, which all users of an SQLite file share."""
    return datetime.now(UTC)
