"""Recovers dropped work: probes of dead workers, and jobs that were not closed.

One process at a time does this, every few seconds; each step is a transaction, and repeating it is harmless. Searches
and deliveries of dead workers need nothing, because workers claim them again.
"""

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import leases, lifecycle, locking, probes, searches, workers
from onnxbisect_db.database import Database, insert, now
from onnxbisect_db.states import JobState, ProbeState, Stage
from onnxbisect_db.tables import Job, Lease, Probe, Search

LEASE = "reconcile"
#: Seconds until another process reconciles after the previous one died. A longer round may overlap with another one,
#: which is harmless.
LEASE_SECONDS = 10.0
_AT_A_TIME = 1000


def reconcile(database: Database, holder: str) -> bool:
    """One round. False while another process has the lease."""
    if not database.run(lambda session: _take(session, holder)):
        return False
    _each(database, _expired_probes, probes.expire)
    _each(database, _idle_searches, _mark_dirty)
    _each(database, _unclosed_jobs, _close)
    database.run(workers.forget)
    return True


def leave(database: Database, holder: str) -> None:
    """Release the lease, unless another process has it. The row stays."""
    mine = (Lease.name == LEASE, Lease.holder == holder)
    database.run(lambda session: session.execute(update(Lease).where(*mine).values(until=now(session))))


def _take(session: Session, holder: str) -> bool:
    """Claim or renew the lease. False while another process has it.

    A lease that ends twice as far ahead as any can was taken before the clock was set back.
    """
    at, lasting = now(session), timedelta(seconds=LEASE_SECONDS)
    mine = {"holder": holder, "until": at + lasting}
    gone = or_(Lease.until <= at, Lease.until > at + 2 * lasting)
    taken = (
        insert(session, Lease)
        .values(name=LEASE, **mine)
        .on_conflict_do_update(index_elements=[Lease.name], set_=mine, where=or_(Lease.holder == holder, gone))
        .returning(Lease.name)
    )
    return session.scalars(taken).one_or_none() is not None


def _each(database: Database, find: Callable[[Session], list[str]], do: Callable[[Session, str], object]) -> None:
    """Run a short transaction for each row, so that workers do not wait long and a failure does not undo others."""
    with database.session() as session:
        ids = find(session)

    def done(row_id: str) -> None:
        database.run(lambda session: do(session, row_id))

    for row_id in ids:
        done(row_id)


def _expired_probes(session: Session) -> list[str]:
    lost = (Probe.state == ProbeState.RUNNING, leases.is_over(Probe.lease_until))
    found = select(Probe.id).where(*lost).order_by(Probe.lease_until).limit(_AT_A_TIME)
    return list(session.scalars(found, leases.moments(now(session))))


def _idle_searches(session: Session) -> list[str]:
    """Searches without a holder that wait for nothing, which happens only after an accident."""
    open_probe = select(Probe.id).where(
        Probe.search_id == Search.id, Probe.state.in_((ProbeState.QUEUED, ProbeState.RUNNING))
    )
    changed_model = aliased(Search)
    open_search = select(changed_model.id).where(
        changed_model.asked_for == Search.id, changed_model.stage != Stage.OVER
    )
    idle = (Search.stage != Stage.OVER, Search.lease_until.is_(None), Search.dirty.is_(False))
    return list(
        session.scalars(select(Search.id).where(*idle, ~open_probe.exists(), ~open_search.exists()).limit(_AT_A_TIME))
    )


def _mark_dirty(session: Session, search_id: str) -> None:
    found = locking.locked_with(session, search_id)
    if found is not None:
        searches.mark_dirty(session, found[1])  # an extra step is harmless


def _unclosed_jobs(session: Session) -> list[str]:
    """Jobs whose searches have all ended. The last search ends its job, so this happens only after an accident."""
    going = Job.state.in_((JobState.QUEUED, JobState.RUNNING))
    left = select(Search.id).where(Search.job_id == Job.id, Search.stage != Stage.OVER)
    return list(session.scalars(select(Job.id).where(going, ~left.exists()).limit(_AT_A_TIME)))


def _close(session: Session, job_id: str) -> None:
    job = locking.locked(session, job_id)
    if job is not None:
        lifecycle.close(session, job, now(session))
