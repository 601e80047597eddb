"""When the message queue is told of a row, and told again.

The queue only rings: it holds no work and may lose all that it has. A row that waits for somebody says when it is rung
again if nobody has heeded it until then, each time after twice as long, so that a busy service is not rung to death.
"""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_

from onnxbisect_db import leases
from onnxbisect_db.tables import Rung

#: How long the first ring is waited for.
FIRST = timedelta(seconds=10)
_LONGEST = timedelta(minutes=10)
_PARKED = timedelta(minutes=1)


def rung(row: Rung, at: datetime) -> None:
    """The caller rings for this row as soon as the transaction is committed."""
    row.ring_at = at + min(FIRST * 2 ** min(row.rings, 10), _LONGEST)
    row.rings += 1


def heeded(row: Rung) -> None:
    """Somebody came; what waits from now on is rung for at once."""
    row.ring_at = None
    row.rings = 0


def parked(row: Rung, at: datetime) -> None:
    """Somebody came and may not take it yet: whoever makes room for it rings, and if he is lost, the reconciler does
    after a while.
    """
    row.ring_at = at + _PARKED
    row.rings = 0


def is_parked(table: type[Rung]) -> ColumnElement[bool]:
    """Rows that somebody came for in vain."""
    return and_(table.ring_at.is_not(None), table.rings == 0)


def last_rung(row: Rung) -> datetime | None:
    """When it was rung, None where it was heeded or parked since."""
    if row.ring_at is None or not row.rings:
        return None
    waits: timedelta = min(FIRST * 2 ** min(row.rings - 1, 10), _LONGEST)
    return row.ring_at - waits


def due(table: type[Rung], at: datetime) -> ColumnElement[bool]:
    """Rows for which it is time to ring."""
    return leases.is_free(table.ring_at, at)
