"""What one process at a time may do, and until when.

A lease lasts until a moment by the clock. A clock that is set back would make it last longer, by hours or days, with
nobody left who holds it. So one that ends further ahead than any lease can has run out, too. Its holder, if there is
one, finds it taken, and nothing that it writes counts.
"""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from onnxbisect_db.database import now
from onnxbisect_db.insertion import insert
from onnxbisect_db.tables import Lease

#: No lease of a row, and no pause before work is tried again, ends further ahead (`Settings.lease_seconds`).
LONGEST = timedelta(minutes=10)


def lasts(until: datetime | None, at: datetime) -> bool:
    """Whether a lease that ends then is held now."""
    return until is not None and at < until <= at + LONGEST


def is_over(until: InstrumentedAttribute[datetime | None], at: datetime) -> ColumnElement[bool]:
    """Rows whose lease has run out; not those that have none."""
    return or_(until <= at, until > at + LONGEST)


def is_free(until: InstrumentedAttribute[datetime | None], at: datetime) -> ColumnElement[bool]:
    """Rows that have no lease, or whose lease has run out."""
    return or_(until.is_(None), is_over(until, at))


def take(session: Session, name: str, holder: str, *, seconds: float) -> bool:
    """Have it, or have it for longer. False while another holder does. All take it for as long, so one that ends twice
    as far ahead was taken before the clock was set back.
    """
    at = now(session)
    lasting = timedelta(seconds=seconds)
    mine = {"holder": holder, "until": at + lasting}
    gone = or_(Lease.until <= at, Lease.until > at + 2 * lasting)
    taken = (
        insert(session, Lease)
        .values(name=name, **mine)
        .on_conflict_do_update(index_elements=[Lease.name], set_=mine, where=or_(Lease.holder == holder, gone))
        .returning(Lease.name)
    )
    return session.scalars(taken).one_or_none() is not None


def give_back(session: Session, name: str, holder: str) -> None:
    """Let another one have it now, unless another one has it already. That it was held stays on record."""
    session.execute(update(Lease).where(Lease.name == name, Lease.holder == holder).values(until=now(session)))
