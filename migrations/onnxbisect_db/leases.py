"""Leases: what one process at a time works on, and until when.

A worker claims a row for some seconds under the row's next epoch, and renews the lease while it works. It names its
epoch in every write: once another worker has claimed the row, or the work is no longer wanted, writes of an earlier
holder have no effect.

A lease ends at a time of the clock. If the clock is set back, a lease of a dead holder would last hours or days longer.
Therefore a lease that ends further ahead than any lease can has expired, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from onnxbisect_db.database import now
from onnxbisect_db.tables import Delivery, Job, Probe, Search, StoredModel
from onnxbisect_db.tables.base import Moment

#: The longest lease, and the longest delay before a retry (`Settings.lease_seconds`).
LONGEST = timedelta(minutes=10)

_Row = Search | Probe | Delivery

_AT, _FAR = bindparam("at", type_=Moment()), bindparam("far", type_=Moment())


@dataclass(frozen=True, kw_only=True)
class RowLease:
    """A claimed row. `epoch` is the fencing token."""

    table: type[_Row]
    row_id: str
    epoch: int

    def matches(self) -> ColumnElement[bool]:
        """A condition for the row while this holder has it."""
        table = self.table
        return and_(table.id == self.row_id, table.epoch == self.epoch, table.lease_until.is_not(None))


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """Claimed work, with the state of its row and job at the time of the claim."""

    lease: RowLease
    job: Job
    model: StoredModel
    search: Search
    #: Whether it is retried alone in a new process after a crash.
    alone: bool

    @property
    def onnx(self) -> str:
        """SHA-256 of the ONNX file."""
        return self.search.onnx or self.model.onnx_file

    @property
    def data(self) -> Mapping[str, str]:
        """The files of its external data by location."""
        return self.model.files if self.search.data is None else self.search.data

    @property
    def request(self) -> Mapping[str, Any]:
        """The request besides the target."""
        return self.job.request if self.search.request is None else self.search.request

    @property
    def started_at(self) -> datetime:
        """The start of the search's budget of seconds."""
        assert self.search.started_at is not None  # noqa: S101 - a claim sets it
        return self.search.started_at


def claim(row: _Row, at: datetime, *, seconds: float) -> RowLease:
    """Claim a locked row that is free."""
    row.epoch += 1
    row.lease_until = at + timedelta(seconds=seconds)
    return RowLease(table=type(row), row_id=row.id, epoch=row.epoch)


def renew(session: Session, lease: RowLease, *, seconds: float) -> bool:
    """Extend the lease. False if it is lost or the work is no longer wanted, so the worker must stop."""
    until = now(session) + timedelta(seconds=seconds)
    renewed = update(lease.table).where(lease.matches()).values(lease_until=until).returning(lease.table.id)
    return session.scalars(renewed).one_or_none() is not None


def wanted(session: Session, lease: RowLease) -> bool:
    """The result that `renew` would have, without a write."""
    return session.scalars(select(lease.table.id).where(lease.matches())).one_or_none() is not None


def is_held(row: _Row, lease: RowLease) -> bool:
    """Whether writes of this lease's holder to the locked row count."""
    return row.epoch == lease.epoch and row.lease_until is not None


def lasts(until: datetime | None, at: datetime) -> bool:
    """Whether a lease, or a pause, with this end lasts now."""
    return until is not None and at < until <= at + LONGEST


def lasting(until: InstrumentedAttribute[datetime | None]) -> ColumnElement[bool]:
    """`lasts` as a condition; of this and the next two, the parameters are `moments`."""
    return and_(until > _AT, until <= _FAR)


def is_over(until: InstrumentedAttribute[datetime | None]) -> ColumnElement[bool]:
    """A condition for rows whose lease or pause has ended; not for those without one."""
    return or_(until <= _AT, until > _FAR)


def is_free(until: InstrumentedAttribute[datetime | None]) -> ColumnElement[bool]:
    """A condition for rows without a lease or pause that lasts."""
    return or_(until.is_(None), is_over(until))


def moments(at: datetime) -> dict[str, datetime]:
    """The parameters of `lasting`, `is_over` and `is_free`."""
    return {"at": at, "far": at + LONGEST}
