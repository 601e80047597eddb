"""Measurements of a search for nodes that must stay precise, stored one by one as they are made.

The search is replayed on them, like a search for culprits on its verdicts: it goes on where another worker, or another
job with the same question, has ended.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from onnxbisect_db import events, searches, trouble
from onnxbisect_db.answers import MeasuredSet
from onnxbisect_db.database import now
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import EventType
from onnxbisect_db.tables import Job, Measurement, Search

#: Most characters of a name of an arithmetic, and of other text.
_NAME, _TEXT = 160, 80


def known(session: Session, claimed: ClaimedSearch, question: str) -> tuple[MeasuredSet, ...]:
    """All measurements that answer the question, of any job of the tenant, oldest first."""
    mine = select(Measurement).join(Job, Job.id == Measurement.job_id)
    mine = mine.where(Measurement.question == question, Job.tenant == claimed.job.tenant)
    in_order = mine.order_by(Measurement.created_at, Measurement.job_id, Measurement.target, Measurement.number)
    return tuple(
        MeasuredSet(
            arithmetic=row.arithmetic,
            keep=tuple(row.keep),
            work=row.work,
            value=row.value,
            shown=row.shown,
            why=row.why,
        )
        for row in session.scalars(in_order)
    )


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The measurements that a target has made itself, and when the first one was."""

    calls: int
    since: datetime | None


def spent(session: Session, claimed: ClaimedSearch, question: str) -> Spent:
    """What the target has spent on the question."""
    own = (
        Measurement.job_id == claimed.job.id,
        Measurement.target == claimed.search.ordinal,
        Measurement.question == question,
    )
    calls, since = session.execute(select(func.count(), func.min(Measurement.created_at)).where(*own)).one()
    return Spent(calls=calls, since=since)


def add(session: Session, claimed: ClaimedSearch, question: str, measured: MeasuredSet) -> int:
    """Store a measurement, tell it, and return its number.

    Its texts are printable lines; their lengths are not trusted. Crashes that came before are forgotten:
    the next process goes on behind it.
    """
    job, search = searches.lock_claimed(session, claimed)
    trouble.forget(search)
    number, at = 1 + count(session, search), now(session)
    value = measured.value if measured.value is not None and isfinite(measured.value) else None
    shown, why = measured.shown[:_TEXT], measured.why[:_TEXT]
    session.add(
        Measurement(
            job_id=job.id,
            target=search.ordinal,
            number=number,
            question=question,
            arithmetic=measured.arithmetic[:_NAME],
            keep=list(measured.keep),
            work=measured.work if isfinite(measured.work) else 0.0,
            value=value,
            shown=shown,
            why=why,
            created_at=at,
        )
    )
    facts = {"number": number, "kept": len(measured.keep), "value": value, "shown": shown, "why": why}
    events.tell(session, job, EventType.PRECISION_ASKED, at, search=search.id, target=search.ordinal + 1, **facts)
    return number


def count(session: Session, search: Search) -> int:
    """How many measurements a target has made."""
    own = select(func.count()).select_from(Measurement)
    return session.scalars(own.where(Measurement.job_id == search.job_id, Measurement.target == search.ordinal)).one()


def latest(session: Session, search: Search, most: int) -> list[Measurement]:
    """A target's latest measurements, newest first."""
    own = select(Measurement).where(Measurement.job_id == search.job_id, Measurement.target == search.ordinal)
    return list(session.scalars(own.order_by(Measurement.number.desc()).limit(most)))


@dataclass(frozen=True, kw_only=True)
class PreciseNodes:
    """The outcome of a search for nodes that must stay precise, in short.

    `ending` is that of the report, None where there is none, as `problem` says. `keep` counts the nodes, `asks` the
    measurements that the result rests on.
    """

    ending: str | None
    headline: str = ""
    keep: int = 0
    asks: int = 0
    problem: str = ""

    def to_json(self) -> Mapping[str, Any]:
        """As `Search.precision`."""
        return asdict(self)
