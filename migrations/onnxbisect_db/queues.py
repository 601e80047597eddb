"""Which probe of a backend is claimed next.

Wanted probes come before speculative ones, which only serve idle workers. Then a job's priority counts; then the tenant
with the fewest running probes, and its job with the fewest; then the longest wait. So a small job is not stuck behind a
large one, nor behind a hundred jobs of another tenant. Among jobs with equally few, a worker prefers one whose model it
has in memory, because reading a model takes longer than many answers, unless another one has waited too long.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Integer, Select, String, and_, bindparam, case, func, or_, select
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import leases
from onnxbisect_db.columns import Moment
from onnxbisect_db.database import now
from onnxbisect_db.insertion import insert_if_new
from onnxbisect_db.states import ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Queue, Search

#: After this wait, workers also claim the job's probes if they must read its model first.
PATIENCE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a backend's queue."""

    queued: int
    running: int


def locked(session: Session, backend: str) -> Queue:
    """The queue row, locked until the transaction ends; must be the transaction's first lock."""
    queue = session.get(Queue, backend, with_for_update=True, populate_existing=True)
    if queue is None:
        session.execute(insert_if_new(session, Queue), {"backend": backend})
        queue = session.get_one(Queue, backend, with_for_update=True, populate_existing=True)
    return queue


def entered(session: Session, backend: str) -> Queue:
    """The queue for a claim. It is locked only if it has a limit, which must hold at any time.

    Otherwise all workers would wait for each other.
    """
    queue = session.get(Queue, backend)
    return queue if queue is not None and queue.at_most is None else locked(session, backend)


def limit(session: Session, backend: str, at_most: int | None) -> None:
    """Set how many probes of a backend may run at a time; None for no limit, 0 to pause it."""
    locked(session, backend).at_most = at_most


def limits(session: Session) -> dict[str, int]:
    """The limits of all backends that have one."""
    bounded = select(Queue.backend, Queue.at_most).where(Queue.at_most.is_not(None))
    return {backend: at_most for backend, at_most in session.execute(bounded) if at_most is not None}


def lengths(session: Session) -> dict[str, Length]:
    """The lengths of all queues."""
    counted = (
        select(Search.backend, Probe.state, func.count())
        .join(Search, Search.id == Probe.search_id)
        .where(Probe.state.in_((ProbeState.QUEUED, ProbeState.RUNNING)))
        .group_by(Search.backend, Probe.state)
    )
    found = {(backend, state): count for backend, state, count in session.execute(counted)}
    return {
        backend: Length(
            queued=found.get((backend, ProbeState.QUEUED), 0), running=found.get((backend, ProbeState.RUNNING), 0)
        )
        for backend in sorted({backend for backend, _ in found})
    }


def due(session: Session, backends: Collection[str]) -> list[str]:
    """The backends with a probe that can be claimed now."""
    queued = (Probe.state == ProbeState.QUEUED, leases.is_free(Probe.retry_at, now(session)))
    of_search = select(Probe.id).where(Probe.search_id == Search.id, *queued)
    asking = (Search.stage == Stage.SEARCH, Search.backend.in_(backends), of_search.exists())
    return list(session.scalars(select(Search.backend).where(*asking).distinct().order_by(Search.backend)))


def others_run(session: Session, worker: str, probe_id: str) -> bool:
    """Whether the worker has other claimed probes, for which a probe that must run alone waits.

    Of two such probes, the one with the lower id goes first.
    """
    before = or_(Probe.crashes == 0, Probe.id < probe_id)
    others = (Probe.state == ProbeState.RUNNING, Probe.worker == worker, Probe.id != probe_id, before)
    return session.scalars(select(Probe.id).where(*others).limit(1)).one_or_none() is not None


@dataclass(frozen=True, kw_only=True)
class ClaimRequest:
    """A worker's request for a probe of a backend. `warm` are universes whose models it has in memory."""

    backend: str
    worker: str
    seconds: float
    warm: Collection[str] = ()


def best(session: Session, queue: Queue, request: ClaimRequest, at: datetime, *, wait: bool) -> str | None:
    """The id of the next probe for that worker, with its job locked; None if there is none or the limit is reached.

    Jobs locked by other transactions are skipped, unless it may `wait` for them. The choice precedes the lock, so the
    probe may be gone.
    """
    given = {
        "backend": queue.backend,
        "worker": request.worker,
        "warm": list(request.warm),
        "overdue": at - PATIENCE if request.warm else datetime.max.replace(tzinfo=UTC),
        "at": at,
        "far": at + leases.LONGEST,
        "at_most": _BOUNDLESS if queue.at_most is None else queue.at_most,
    }
    return session.scalars(_CHOICE_OF_ALL if wait else _CHOICE, given).one_or_none()


def _choice() -> Select[str]:
    duplicate = aliased(Probe)
    asking = select(duplicate.id).where(duplicate.id == Probe.duplicate_id, duplicate.state == ProbeState.RUNNING)
    at, far = bindparam("at", type_=Moment()), bindparam("far", type_=Moment())
    # queued, not waiting for a retry, and not waiting for a duplicate in flight
    free = and_(
        Probe.state == ProbeState.QUEUED,
        or_(Probe.retry_at.is_(None), Probe.retry_at <= at, Probe.retry_at > far),
        or_(Probe.duplicate_id.is_(None), ~asking.exists()),
    )
    # one index lookup for each search, however many of its probes wait
    first = (
        select(Probe.id)
        .where(Probe.search_id == Search.id, free)
        .order_by(Probe.speculative, Probe.rank, Probe.id)
        .limit(1)
        .correlate(Search)
    )
    speculative = first.with_only_columns(Probe.speculative).scalar_subquery()
    running = (
        select(Search.job_id, func.count().label("probes"))
        .join(Probe, Probe.search_id == Search.id)
        .where(Probe.state == ProbeState.RUNNING, Search.backend == bindparam("backend"))
        .group_by(Search.job_id)
        .cte("running")
    )
    of_tenant = (
        select(Job.tenant, func.sum(running.c.probes).label("probes"))
        .join(running, running.c.job_id == Job.id)
        .group_by(Job.tenant)
        .cte("of_tenant")
    )
    of_backend = select(func.coalesce(func.sum(running.c.probes), 0)).scalar_subquery()
    claimed = (Probe.state == ProbeState.RUNNING, Probe.worker == bindparam("worker"))
    # a probe that has crashed is retried alone
    alone = select(Probe.id).where(*claimed, Probe.crashes > 0)
    overdue = func.coalesce(Job.served_at, Search.started_at) <= bindparam("overdue", type_=Moment())
    at_hand = or_(Search.universe.in_(bindparam("warm", expanding=True)), overdue)
    return (
        # as few columns as possible: PostgreSQL sorts all rows before it locks one
        select(first.scalar_subquery())
        .select_from(Job)
        .join(Search, Search.job_id == Job.id)
        .outerjoin(running, running.c.job_id == Job.id)
        .outerjoin(of_tenant, of_tenant.c.tenant == Job.tenant)
        .where(
            *(Search.stage == Stage.SEARCH, Search.backend == bindparam("backend")),
            of_backend < bindparam("at_most"),
            ~alone.exists(),
            speculative.is_not(None),
        )
        .order_by(
            speculative,
            Job.priority.desc(),
            func.coalesce(of_tenant.c.probes, 0),
            func.coalesce(running.c.probes, 0),
            case((at_hand, 0), else_=1),
            Job.served_at.nulls_first(),
            Job.id,
            Search.ordinal,
        )
        .limit(1)
    )


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The demand for slots of a backend: the limit of running probes (None without), the running ones, and others'
    probes.

    The latter are the waiting ones except speculative ones, and one for each search that waits for its coordinator: its
    next probe precedes another search's speculation.
    """

    at_most: int | None
    running: int
    elsewhere: int


def demand(session: Session, backend: str, search_id: str, *, most: int) -> Demand:
    """The demand as one search sees it. At most `most` waiting probes are counted."""
    at_most, running, elsewhere = session.execute(
        _DEMAND, {"backend": backend, "search": search_id, "most": most}
    ).one()
    return Demand(at_most=at_most, running=running, elsewhere=elsewhere)


def _demand() -> Select[Any]:
    backend = bindparam("backend", type_=String())
    bound = select(Queue.at_most).where(Queue.backend == backend)
    mine = (Search.backend == backend, Probe.state == ProbeState.RUNNING)
    running = select(func.count()).select_from(Probe).join(Search).where(*mine)
    others = (Search.backend == backend, Search.stage == Stage.SEARCH, Search.id != bindparam("search"))
    waiting = (Probe.state == ProbeState.QUEUED, Probe.speculative.is_(False))
    wanted = select(Probe.id).join(Search, Search.id == Probe.search_id).where(*others, *waiting)
    few = wanted.limit(bindparam("most", type_=Integer())).subquery()
    asked = select(func.count()).select_from(few)
    to_come = select(func.count()).select_from(Search).where(*others, Search.dirty)
    elsewhere = asked.scalar_subquery() + to_come.scalar_subquery()
    return select(bound.scalar_subquery(), running.scalar_subquery(), elsewhere)


#: More probes than can run.
_BOUNDLESS = 1 << 30
# Built once: composing the statement takes longer than running it.
_CHOICE_OF_ALL = _choice().with_for_update(of=Job)
_CHOICE = _choice().with_for_update(of=Job, skip_locked=True)
_DEMAND = _demand()
