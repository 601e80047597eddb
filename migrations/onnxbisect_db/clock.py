"""What time it is: one clock for all who share a database, since the clocks of workers differ."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from onnxbisect_db.columns import Moment

#: Seconds for which the server's clock need not be asked again.
_GOOD_FOR = 10.0
#: Goes on while the machine sleeps, where the system has such a clock.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Clock = Callable[[Session], datetime]


class ServerClock:
    """PostgreSQL's clock, asked now and then. In between this machine counts on: asking each time would be one more way
    to the server and back in every transaction. Threads may share it; it is late by that way, and never early.
    """

    def __init__(self) -> None:
        self._known: tuple[datetime, float] | None = None

    def __call__(self, session: Session) -> datetime:
        """`session` is one that may ask."""
        known = self._known
        since = 0.0 if known is None else time.clock_gettime(_COUNTER) - known[1]
        if known is not None and since < _GOOD_FOR:
            return known[0] + timedelta(seconds=since)
        # not `now()`, which is when the transaction began
        asked = session.scalars(select(func.clock_timestamp(type_=Moment()))).one()
        self._known = asked, time.clock_gettime(_COUNTER)
        return asked


def own_clock(_session: Session) -> datetime:
    """This machine's: SQLite's users share one."""
    return datetime.now(UTC)
