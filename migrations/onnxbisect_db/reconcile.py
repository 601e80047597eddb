"""What was dropped is picked up: the queue lost a message, a worker died, a coordinator vanished.

One process at a time does this, every few seconds; each step is a transaction of its own, and doing one twice is
harmless. It rings nothing itself. It returns what is to be rung, and has noted that it is, so that the next one rings
again only after a while.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from onnxbisect_db import bells, deliveries, leases, lifecycle, locking, probes, queues, searches, workers
from onnxbisect_db.database import Database, now
from onnxbisect_db.states import JobState, ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Search

LEASE = "reconcile"
#: For so long nobody reconciles when the one who did has died. A round that takes longer meets another one, which harms
#: nothing.
LEASE_SECONDS = 10.0
_AT_A_TIME = 1000

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SearchBell:
    """A search for which a task is to be started: on the backend's queue to prepare it, else on that of control."""

    search_id: str
    stage: Stage
    backend: str


@dataclass(frozen=True, kw_only=True)
class Bells:
    """What is to be rung. `probes` says for a backend how many workers are to look for a probe."""

    searches: tuple[SearchBell, ...] = ()
    probes: Mapping[str, int] = field(default_factory=dict)
    deliveries: tuple[str, ...] = ()


def reconcile(database: Database, holder: str) -> Bells | None:
    """One round. None while another process sees to it."""
    if not database.run(lambda session: leases.take(session, LEASE, holder, seconds=LEASE_SECONDS)):
        return None
    _each(database, _expired_probes, probes.expire)
    _each(database, _unclosed_jobs, _close)
    database.run(workers.forget)
    database.run(_hurry)
    return Bells(
        searches=tuple(bell for bell in _each(database, _waiting_searches, _ring) if bell is not None),
        probes=database.run(_ring_queues),
        deliveries=tuple(database.run(deliveries.ring)),
    )


def leave(database: Database, holder: str) -> None:
    """Another process may reconcile at once."""
    database.run(lambda session: leases.give_back(session, LEASE, holder))


def _each(database: Database, find: Callable[[Session], list[str]], do: Callable[[Session, str], T]) -> list[T]:
    """A short transaction for each: workers are not kept waiting, and one that fails does not undo the others."""
    with database.session() as session:
        ids = find(session)

    def done(row_id: str) -> T:
        return database.run(lambda session: do(session, row_id))

    return [done(row_id) for row_id in ids]


def _expired_probes(session: Session) -> list[str]:
    lost = (Probe.state == ProbeState.RUNNING, leases.is_over(Probe.lease_until, now(session)))
    return list(session.scalars(select(Probe.id).where(*lost).order_by(Probe.lease_until).limit(_AT_A_TIME)))


def _unclosed_jobs(session: Session) -> list[str]:
    """Jobs whose searches are over. The last of them ends its job, so this finds some only after a mishap."""
    going = Job.state.in_((JobState.QUEUED, JobState.RUNNING))
    left = select(Search.id).where(Search.job_id == Job.id, Search.stage != Stage.OVER)
    return list(session.scalars(select(Job.id).where(going, ~left.exists()).limit(_AT_A_TIME)))


def _close(session: Session, job_id: str) -> None:
    job = locking.locked(session, job_id)
    if job is not None:
        lifecycle.close(session, job, now(session))


def _waiting_searches(session: Session) -> list[str]:
    at = now(session)
    wants = searches.wants_a_turn(at, at + leases.LONGEST)
    waiting = select(Search.id).where(Search.stage != Stage.OVER, bells.due(Search, at), wants)
    return list(session.scalars(waiting.order_by(Search.id).limit(_AT_A_TIME)))


def _hurry(session: Session) -> None:
    """Where a backend has hands free, nothing that is to be prepared waits behind others: its ring was lost, and is not
    waited for any longer than the first one. One for each hand, the oldest first.
    """
    at = now(session)
    reading = (Search.stage == Stage.PREPARE, ~leases.is_free(Search.lease_until, at))
    counted = select(Search.backend, func.count()).where(*reading).group_by(Search.backend)
    busy = {backend: count for backend, count in session.execute(counted)}  # noqa: C416 - dict() of rows has no types
    lengths = queues.lengths(session)
    for backend, hands in workers.slots(session).items():
        running = lengths[backend].running if backend in lengths else 0
        free = hands - running - busy.get(backend, 0)
        waiting = (Search.stage == Stage.PREPARE, Search.backend == backend, Search.lease_until.is_(None))
        due = leases.is_free(Search.retry_at, at)
        for search in session.scalars(select(Search).where(*waiting, due).order_by(Search.id).limit(max(free, 0))):
            rung = bells.last_rung(search)
            if rung is not None and at - rung >= bells.FIRST:
                session.execute(update(Search).where(Search.id == search.id).values(ring_at=None))


def _ring(session: Session, search_id: str) -> SearchBell | None:
    known = session.get(Search, search_id)
    job = locking.locked(session, known.job_id) if known is not None else None
    search = session.get(Search, search_id, populate_existing=True) if job is not None else None
    at = now(session)
    if search is None or search.stage == Stage.OVER or leases.lasts(search.ring_at, at):
        return None
    bells.rung(search, at)
    return SearchBell(search_id=search.id, stage=Stage(search.stage), backend=search.backend)


def _ring_queues(session: Session) -> dict[str, int]:
    """For each backend as many as have something to take and hands free; one where no worker is known."""
    slots, lengths = workers.slots(session), queues.lengths(session)
    found = {}
    for backend, due in queues.due(session).items():
        free = slots.get(backend, lengths[backend].running + 1) - lengths[backend].running
        queue = queues.locked(session, backend)
        at = now(session)
        if free > 0 and not leases.lasts(queue.ring_at, at):
            bells.rung(queue, at)
            found[backend] = min(due, free)
    return found
