"""Leases: what one process at a time works on, and until when.

A worker claims a row for some seconds, under the row's next epoch, and renews that while it works. It names its epoch
in everything that it writes: once another worker has claimed the row, or nobody wants the work any more, nothing that
an earlier holder writes counts.

A lease lasts until a moment by the clock. A clock that is set back would make it last longer, by hours or days, though
its holder is gone. So a lease that ends further ahead than any lease can has run out, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from onnxbisect_db.database import now
from onnxbisect_db.insertion import insert
from onnxbisect_db.tables import Delivery, Job, Lease, Model, Probe, Search

#: No lease of a row, and no pause before work is tried again, ends further ahead (`Settings.lease_seconds`).
LONGEST = timedelta(minutes=10)

_Row = Search | Probe | Delivery


@dataclass(frozen=True, kw_only=True)
class RowLease:
    """A claimed row. `epoch` is the fencing token."""

    table: type[_Row]
    row_id: str
    epoch: int

    def matches(self) -> ColumnElement[bool]:
        """The row, as long as this holder has it."""
        table = self.table
        return and_(table.id == self.row_id, table.epoch == self.epoch, table.lease_until.is_not(None))


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """Work that a worker has claimed: what it needs to know of it, as it was then."""

    lease: RowLease
    job: Job
    model: Model
    search: Search
    #: Whether it is tried once more since a process died of it: in a new process.
    alone: bool

    @property
    def onnx(self) -> str:
        """SHA-256 of the ONNX file."""
        return self.search.onnx or self.model.onnx_file

    @property
    def data(self) -> Mapping[str, str]:
        """By location the files of its external data."""
        return self.model.files if self.search.data is None else self.search.data

    @property
    def request(self) -> Mapping[str, Any]:
        """What is asked besides the target."""
        return self.job.request if self.search.request is None else self.search.request

    @property
    def started_at(self) -> datetime:
        """Where the budget of the search is counted from."""
        assert self.search.started_at is not None  # noqa: S101 - a claim sets it
        return self.search.started_at


def claim(row: _Row, at: datetime, *, seconds: float) -> RowLease:
    """Claim a row that is locked and that nobody holds."""
    row.epoch += 1
    row.lease_until = at + timedelta(seconds=seconds)
    return RowLease(table=type(row), row_id=row.id, epoch=row.epoch)


def renew(session: Session, lease: RowLease, *, seconds: float) -> bool:
    """Hold the row for longer. False where it is lost, or nobody wants the work any more: stop."""
    until = now(session) + timedelta(seconds=seconds)
    renewed = update(lease.table).where(lease.matches()).values(lease_until=until).returning(lease.table.id)
    return session.scalars(renewed).one_or_none() is not None


def wanted(session: Session, lease: RowLease) -> bool:
    """What `renew` returns, for the price of a read."""
    return session.scalars(select(lease.table.id).where(lease.matches())).one_or_none() is not None


def is_held(row: _Row, lease: RowLease) -> bool:
    """Whether what the holder of this lease writes to the locked row counts."""
    return row.epoch == lease.epoch and row.lease_until is not None


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
    """Claim, or renew, what one process at a time may do, such as reconciling. False while another holder has it. All
    take it for as long, so a lease that ends twice as far ahead was taken before the clock was set back.
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
    """Let another process have it now, unless one has it already. That it was held stays on record."""
    session.execute(update(Lease).where(Lease.name == name, Lease.holder == holder).values(until=now(session)))
