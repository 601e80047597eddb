"""Which search is next at a stage: to be prepared for a backend, to be coordinated, or to be reported on.

A ring names a search, and what is done is what is next by right when a hand is free for it. A job's priority counts
first; then the tenant that has the fewest searches in hand at the stage; among equals the one that was served longest
ago, and of its jobs the one that was. So a tenant's thousand jobs are no more than another one's single job.

No order helps while all hands are held, and what a model takes is not known before. So where there are several tenants,
the searches of one hold half of a worker's hands at most. A ring that finds nothing but what is held back by that parks
one of these (`bells.parked`), and whoever lets go of a search of the tenant rings for it (`room`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, String, and_, bindparam, case, func, or_, select
from sqlalchemy.orm import Session

from onnxbisect_db import bells, leases, locking, searches
from onnxbisect_db.columns import Moment
from onnxbisect_db.database import now
from onnxbisect_db.one_at_a_time import one_at_a_time
from onnxbisect_db.reconcile import SearchBell
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Job, Search, Token

#: How many of the latest turns tell when tenants and jobs were served; who had none of these comes before all others.
_LATEST = 200
_OPEN = [stage for stage in Stage if stage is not Stage.OVER]
#: How often another one is chosen where what was chosen is gone.
_TRIES = 5
#: More than any worker has.
_BOUNDLESS = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Taker:
    """A worker that wants a turn, for so many seconds at first; it has so many `hands`, None where one tenant may hold
    all of them.
    """

    worker: str
    seconds: float
    hands: int | None = None

    @property
    def share(self) -> int:
        """How many of the hands the searches of one of several tenants may hold."""
        return _BOUNDLESS if self.hands is None else max(self.hands // 2, 1)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A turn. `again`: a ring was spared, since the search had been parked, and the caller rings for another one."""

    turn: Turn
    again: bool


def take(session: Session, search_id: str, stage: Stage, taker: Taker) -> Taken | None:
    """It was rung for the search at this stage: take the turn that is next by right, there and for its backend where
    models are read. None where there is none, or only such as are held back.
    """
    backend = searches.backend_of(session, search_id) if stage.at_backend else None
    if stage.at_backend and backend is None:
        return None
    _enter(session, taker)
    without: list[str] = []  # gone by the time that their jobs were locked
    while len(without) < _TRIES:
        chosen = _best(session, stage, backend, taker, without, wait=False)
        if (chosen is None or chosen.held_back) and not locking.holds_any(session):
            chosen = _best(session, stage, backend, taker, without, wait=True)
        if chosen is None:
            return None
        locking.note_locked(session, chosen.job)
        if chosen.held_back:
            if chosen.parked or _park(session, chosen.search_id, stage, taker):
                return None
        else:
            turn = searches.claim(session, chosen.search_id, stage, seconds=taker.seconds, worker=taker.worker)
            if turn is not None:
                return Taken(turn=turn, again=chosen.parked)
        without.append(chosen.search_id)
    return None


def room(session: Session, turn: Turn, taker: Taker) -> SearchBell | None:
    """The worker has let go of a search: what the caller rings for, of those of its tenant that were parked here, or
    elsewhere on the way to the same queue.
    """
    if taker.hands is None:
        return None
    _enter(session, taker)
    alike = [Search.stage == turn.stage]
    if turn.stage.at_backend:
        alike.append(Search.backend == turn.backend)
    mine = or_(Search.worker == taker.worker, and_(*alike))
    parked = (Job.tenant == turn.tenant, Search.stage.in_(_OPEN), bells.is_parked(Search), mine)
    found = session.scalars(select(Search.id).join(Job).where(*parked).order_by(Search.ring_at, Search.id).limit(1))
    search_id = found.one_or_none()
    locked = locking.locked_with(session, search_id) if search_id is not None else None
    if locked is None or locked[1].stage == Stage.OVER:
        return None
    search = locked[1]
    bells.heeded(search)
    bells.rung(search, now(session))
    return SearchBell(search_id=search.id, stage=Stage(search.stage), backend=search.backend)


def _enter(session: Session, taker: Taker) -> None:
    """Hands of a worker that count each other's searches come one after the other."""
    if taker.hands is not None:
        one_at_a_time(session, ("turns", taker.worker))


@dataclass(frozen=True, kw_only=True)
class _Choice:
    job: Job
    search_id: str
    #: Its tenant holds as many hands of the worker as it may.
    held_back: bool
    parked: bool


def _best(
    session: Session, stage: Stage, backend: str | None, taker: Taker, without: Collection[str], *, wait: bool
) -> _Choice | None:
    """The next one, or one that is held back where all are. Jobs that others have locked at this moment are passed
    over, unless it should `wait` for them.
    """
    at = now(session)
    given = {
        "stage": stage,
        "backend": backend,
        "at": at,
        "far": at + leases.LONGEST,
        "worker": taker.worker,
        "share": taker.share,
        "without": without,
    }
    found = session.execute(_CHOICE_OF_ALL if wait else _CHOICE, given).one_or_none()
    if found is None:
        return None
    job, search_id, held_back, parked = found
    return _Choice(job=job, search_id=search_id, held_back=bool(held_back), parked=bool(parked))


def _park(session: Session, search_id: str, stage: Stage, taker: Taker) -> bool:
    """False where another worker has taken it since it was chosen."""
    found = locking.locked_with(session, search_id)
    at = now(session)
    if found is None or found[1].stage != stage:
        return False
    search = found[1]
    if leases.lasts(search.lease_until, at):
        return False
    bells.parked(search, at)
    search.worker = taker.worker
    return True


def _choice() -> Select[Any]:
    at = bindparam("at", type_=Moment())
    far = bindparam("far", type_=Moment())
    held = (Search.stage.in_(_OPEN), Search.lease_until > at, Search.lease_until <= far)
    here = case((Search.worker == bindparam("worker", type_=String()), 1), else_=0)
    at_stage = case((Search.stage == bindparam("stage", type_=String()), 1), else_=0)
    hands = (
        select(Job.tenant, func.sum(here).label("here"), func.sum(at_stage).label("at_stage"))
        .join(Search, Search.job_id == Job.id)
        .where(*held)
        .group_by(Job.tenant)
        .cte("hands")
    )
    latest = (
        select(Search.job_id, Search.claimed_at)
        .where(Search.claimed_at.is_not(None))
        .order_by(Search.claimed_at.desc())
        .limit(_LATEST)
        .cte("latest")
    )
    of_job = select(latest.c.job_id, func.max(latest.c.claimed_at).label("at")).group_by(latest.c.job_id).cte("of_job")
    served = (
        select(Job.tenant, func.max(latest.c.claimed_at).label("at"))
        .join(latest, latest.c.job_id == Job.id)
        .group_by(Job.tenant)
        .cte("served")
    )
    good = (Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > at))
    tenants = select(func.count(Token.tenant.distinct())).where(*good).scalar_subquery()
    full = func.coalesce(hands.c.here, 0) >= bindparam("share")
    held_back = case((and_(full, tenants > 1), 1), else_=0)
    parked = case((bells.is_parked(Search), 1), else_=0)
    backend = bindparam("backend", type_=String())
    return (
        select(Job, Search.id, held_back, parked)
        .join(Search, Search.job_id == Job.id)
        .outerjoin(hands, hands.c.tenant == Job.tenant)
        .outerjoin(served, served.c.tenant == Job.tenant)
        .outerjoin(of_job, of_job.c.job_id == Job.id)
        .where(
            Search.stage == bindparam("stage", type_=String()),
            or_(backend.is_(None), Search.backend == backend),
            searches.wants_a_turn(at, far),
            Search.id.not_in(bindparam("without", expanding=True)),
        )
        .order_by(
            held_back,
            held_back * parked,
            Job.priority.desc(),
            func.coalesce(hands.c.at_stage, 0),
            served.c.at.nulls_first(),
            of_job.c.at.nulls_first(),
            Search.claimed_at.nulls_first(),
            Search.id,
        )
        .limit(1)
    )


# Composed once: putting it together takes longer than running it.
_CHOICE_OF_ALL = _choice().with_for_update(of=Job)
_CHOICE = _choice().with_for_update(of=Job, skip_locked=True)
