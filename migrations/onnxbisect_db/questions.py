"""The probes of a job, page by page, for whoever wants to see what was asked."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Job, Probe, Search


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some probes, and the id to go on after: None on the last page."""

    probes: tuple[Probe, ...]
    after: str | None


def listed(
    session: Session,
    job: Job,
    *,
    search_id: str | None = None,
    state: ProbeState | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Page:
    """The probes of a job's targets, the oldest first, from the one after `after` on; not those of their repairs."""
    mine = (Search.job_id == job.id, Search.asked_for.is_(None))
    found = select(Probe).join(Search, Search.id == Probe.search_id).where(*mine)
    if search_id is not None:
        found = found.where(Probe.search_id == search_id)
    if state is not None:
        found = found.where(Probe.state == state)
    if after is not None:
        found = found.where(Probe.id > after)
    probes = list(session.scalars(found.order_by(Probe.id).limit(limit + 1)))
    more = len(probes) > limit
    probes = probes[:limit]
    return Page(probes=tuple(probes), after=probes[-1].id if more else None)


@dataclass(frozen=True, kw_only=True)
class Lately:
    """How a search gets on: what workers have in hand, the longest first; the newest answers, the newest first; how
    many questions wait besides, and since when workers have asked.
    """

    in_hand: tuple[Probe, ...]
    answers: tuple[Probe, ...]
    waiting: int
    since: datetime | None


def lately(session: Session, search_id: str, *, answers: int) -> Lately:
    """With so many answers at most."""
    mine = select(Probe).where(Probe.search_id == search_id)
    running = mine.where(Probe.state == ProbeState.RUNNING).order_by(Probe.started_at, Probe.id)
    done = mine.where(Probe.state == ProbeState.DONE).order_by(Probe.ended_at.desc(), Probe.id.desc())
    waiting = select(func.count()).where(Probe.search_id == search_id, Probe.state == ProbeState.QUEUED)
    return Lately(
        in_hand=tuple(session.scalars(running)),
        answers=tuple(session.scalars(done.limit(answers))),
        waiting=session.scalars(waiting).one(),
        since=session.scalars(select(func.min(Probe.started_at)).where(Probe.search_id == search_id)).one(),
    )
