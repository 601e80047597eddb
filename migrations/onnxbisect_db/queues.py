"""Which probe of a backend is claimed next.

Wanted probes come before speculative ones, which only serve idle workers. Then a job's priority counts; then the tenant
with the fewest running probes, and its job with the fewest; then the longest wait. So a small job is not stuck behind a
large one, nor behind a hundred jobs of another tenant. Among jobs with equally few, a worker prefers one whose model it
has in memory, because reading a model takes longer than many answers, unless another one has waited too long.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    String,
    Subquery,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import leases
from onnxbisect_db.database import insert_if_new, now
from onnxbisect_db.locking import WITH_MODEL, LockedPick
from onnxbisect_db.states import COMPILING, ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Queue, Search
from onnxbisect_db.tables.base import Moment, constant

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


def queue_for_claim(session: Session, backend: str) -> Queue:
    """The queue for a claim. It is locked only if it has a limit, which must hold at any time.

    Otherwise all workers would wait for each other.
    """
    queue = session.get(Queue, backend)
    return queue if queue is not None and queue.at_most is None else locked(session, backend)


def limit(session: Session, backend: str, at_most: int | None) -> None:
    """Set how many compiles of a backend may run at a time; None for no limit, 0 to pause it."""
    locked(session, backend).at_most = at_most


def limits(session: Session) -> dict[str, int]:
    """The limits of all backends that have one."""
    bounded = select(Queue.backend, Queue.at_most).where(Queue.at_most.is_not(None))
    return {backend: at_most for backend, at_most in session.execute(bounded) if at_most is not None}


def full(session: Session, backends: Collection[str]) -> list[str]:
    """Those of these backends that have a limit and have reached it; they stay locked until the transaction ends."""
    bounded = sorted(limits(session).keys() & set(backends))
    locks = {name: locked(session, name).at_most for name in bounded}
    moments = leases.moments(now(session))
    running = {name: session.execute(_RUNNING, {"backend": name, **moments}).one()[1] for name in bounded}
    return [name for name, at_most in locks.items() if at_most is not None and running[name] >= at_most]


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
    return list(session.scalars(_DUE, {"backends": list(backends), **leases.moments(now(session))}))


def _due() -> Select[str]:
    queued = Probe.state == constant(ProbeState.QUEUED)
    of_search = select(Probe.id).where(Probe.search_id == Search.id, queued, leases.is_free(Probe.retry_at))
    return (
        select(Search.backend)
        .where(
            select(Probe.id).where(queued).exists(),  # mostly there is none, and PostgreSQL looks at no search
            Search.stage == constant(Stage.SEARCH),
            Search.backend.in_(bindparam("backends", expanding=True)),
            of_search.exists(),
        )
        .distinct()
        .order_by(Search.backend)
    )


def others_run(session: Session, worker: str, probe_id: str) -> bool:
    """Whether the worker has other claimed probes, for which a probe that must run alone waits.

    Of two such probes, the one with the lower id goes first.
    """
    before = or_(Probe.crashes == 0, Probe.id < probe_id)
    others = (Probe.state == ProbeState.RUNNING, Probe.worker == worker, Probe.id != probe_id, before)
    return session.scalars(select(Probe.id).where(*others).limit(constant(1))).one_or_none() is not None


@dataclass(frozen=True, kw_only=True)
class ClaimRequest:
    """A worker's request for a probe of a backend. `warm` are universes whose models it has in memory."""

    backend: str
    worker: str
    seconds: float
    warm: Collection[str] = ()


def next_probes(session: Session, queue: Queue, request: ClaimRequest, at: datetime) -> Iterator[Row[*tuple[Any, ...]]]:
    """The next probes for that worker, each with job, search and model, until one is claimed (`LockedPick`); none once
    the limit is reached.
    """
    given = {
        **leases.moments(at),
        "backend": queue.backend,
        "worker": request.worker,
        "warm": list(request.warm),
        "overdue": at - PATIENCE if request.warm else datetime.max.replace(tzinfo=UTC),
        "at_most": _BOUNDLESS if queue.at_most is None else queue.at_most,
    }
    return _CHOICE.of(session, {**given, "speculative": False}, {**given, "speculative": True})


def _choice() -> Select[str]:
    duplicate = aliased(Probe)
    is_running = constant(ProbeState.RUNNING)
    asking = select(duplicate.id).where(duplicate.id == Probe.duplicate_id, duplicate.state == is_running)
    running = (
        select(Search.job_id, func.count().label("probes"))
        .join(Probe, Probe.search_id == Search.id)
        .where(Probe.state == is_running, Search.backend == bindparam("backend"))
        .group_by(Search.job_id)
        .cte("running")
    )
    of_tenant = (
        select(Job.tenant, cast(func.sum(running.c.probes), Integer).label("probes"))
        .join(running, running.c.job_id == Job.id)
        .group_by(Job.tenant)
        .cte("of_tenant")
    )
    probes = select(func.coalesce(func.sum(running.c.probes), constant(0))).scalar_subquery()
    of_backend = probes + _compiling().scalar_subquery()
    claimed = (Probe.state == is_running, Probe.worker == bindparam("worker"))
    # a probe that has crashed is retried alone
    alone = select(Probe.id).where(*claimed, Probe.crashes > constant(0))
    overdue = func.coalesce(Job.served_at, Search.started_at) <= bindparam("overdue", type_=Moment())
    at_hand = or_(Search.universe.in_(bindparam("warm", expanding=True)), overdue)
    # as few columns as possible, because PostgreSQL sorts all rows
    searches = (
        select(
            *(Search.id, Search.ordinal, Job.id.label("job_id"), Job.priority, Job.served_at),
            func.coalesce(of_tenant.c.probes, constant(0)).label("of_tenant"),
            func.coalesce(running.c.probes, constant(0)).label("of_job"),
            case((at_hand, constant(0)), else_=constant(1)).label("cold"),
        )
        .select_from(Job)
        .join(Search, Search.job_id == Job.id)
        .outerjoin(running, running.c.job_id == Job.id)
        .outerjoin(of_tenant, of_tenant.c.tenant == Job.tenant)
        .where(
            *(Search.stage == constant(Stage.SEARCH), Search.backend == bindparam("backend")),
            of_backend < bindparam("at_most"),
            ~alone.exists(),
        )
    )
    in_order, order = _ordered(searches)
    # queued, not waiting for a retry, and not waiting for a duplicate in flight
    first = (
        select(Probe.id)
        .where(
            *(Probe.search_id == in_order.c.id, Probe.state == constant(ProbeState.QUEUED)),
            *(Probe.speculative == bindparam("speculative"), leases.is_free(Probe.retry_at)),
            or_(Probe.duplicate_id.is_(None), ~asking.exists()),
        )
        .order_by(Probe.rank, Probe.id)
        .limit(constant(1))
        .correlate(in_order)
        .scalar_subquery()
    )
    return (
        select(first)
        .select_from(in_order)
        .join(Job, Job.id == in_order.c.job_id)
        .where(first.is_not(None))
        .order_by(*order)
        .limit(constant(1))
    )


def _ordered(searches: Select[Any]) -> tuple[Subquery, list[ColumnElement[Any]]]:
    """These searches in the order of their turns, and that order.

    Sorted inside as well, so that PostgreSQL looks for a probe of one search after the other until it has found one.
    """

    def order(it: Any) -> list[ColumnElement[Any]]:
        return [
            *(it.priority.desc(), it.of_tenant, it.of_job, it.cold, it.served_at.nulls_first()),
            *(it.job_id, it.ordinal),
        ]

    in_order = searches.order_by(*order(searches.selected_columns)).subquery("in_order")
    return in_order, order(in_order.c)


def idle(session: Session, backend: str, search_id: str, slots: int) -> int:
    """How many of the backend's slots have nothing to do but this search's speculation.

    They are free, and neither a probe of another search will take them, except a speculative one, nor the next probe of
    one that waits for its coordinator.
    """
    at_most, running = session.execute(_RUNNING, {"backend": backend, **leases.moments(now(session))}).one()
    free: int = (slots if at_most is None else min(slots, at_most)) - running
    if free <= 0:  # as a rule, when there is much to do
        return 0
    wanted = session.scalars(_ELSEWHERE, {"backend": backend, "search": search_id, "free": free}).one()
    return free - wanted


def _running() -> Select[Any]:
    backend = bindparam("backend", type_=String())
    at_most = select(Queue.at_most).where(Queue.backend == backend)
    mine = (Search.backend == backend, Probe.state == constant(ProbeState.RUNNING))
    running = select(func.count()).select_from(Probe).join(Search).where(*mine)
    return select(at_most.scalar_subquery(), running.scalar_subquery() + _compiling().scalar_subquery())


def _compiling() -> Select[int]:
    """How many claimed searches compile without probes, which takes a seat, too."""
    compiles = (Search.stage.in_([constant(stage) for stage in COMPILING]), leases.lasting(Search.lease_until))
    return select(func.count()).where(Search.backend == bindparam("backend", type_=String()), *compiles)


def _elsewhere() -> Select[int]:
    """Counted as far as there are free slots."""
    others = (
        *(Search.backend == bindparam("backend"), Search.stage == constant(Stage.SEARCH)),
        Search.id != bindparam("search"),
    )
    waiting = (Probe.state == constant(ProbeState.QUEUED), Probe.speculative.is_(False))
    probes = select(Probe.id).join(Search, Search.id == Probe.search_id).where(*others, *waiting)
    wanted = union_all(probes, select(Search.id).where(*others, Search.dirty))
    return select(func.count()).select_from(wanted.limit(bindparam("free", type_=Integer())).subquery())


#: More probes than can run.
_BOUNDLESS = 1 << 30
# Built once: composing the statement takes longer than running it.
_DUE = _due()
_CHOICE = LockedPick(
    _choice(),
    WITH_MODEL.add_columns(Probe).join(Probe, Probe.search_id == Search.id).where(Probe.id == bindparam("chosen")),
)
_RUNNING = _running()
_ELSEWHERE = _elsewhere()
