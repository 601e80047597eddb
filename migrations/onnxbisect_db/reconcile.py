"""What was dropped is picked up: a worker died with a probe, a job was not closed.

One process at a time does this, every few seconds; each step is a transaction of its own, and doing one twice is
harmless. Searches and webhook messages whose holder died need nothing done: workers claim them again.
"""

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from onnxbisect_db import leases, lifecycle, locking, probes, searches, workers
from onnxbisect_db.database import Database, now
from onnxbisect_db.states import JobState, ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Search

LEASE = "reconcile"
#: For so long no process reconciles when the one that did has died. A round that takes longer meets another one, which
#: harms nothing.
LEASE_SECONDS = 10.0
_AT_A_TIME = 1000


def reconcile(database: Database, holder: str) -> bool:
    """One round. False while another process sees to it."""
    if not database.run(lambda session: leases.take(session, LEASE, holder, seconds=LEASE_SECONDS)):
        return False
    _each(database, _expired_probes, probes.expire)
    _each(database, _idle_searches, _mark_dirty)
    _each(database, _unclosed_jobs, _close)
    database.run(workers.forget)
    return True


def leave(database: Database, holder: str) -> None:
    """Another process may reconcile at once."""
    database.run(lambda session: leases.give_back(session, LEASE, holder))


def _each(database: Database, find: Callable[[Session], list[str]], do: Callable[[Session, str], object]) -> None:
    """A short transaction for each: workers are not kept waiting, and one that fails does not undo the others."""
    with database.session() as session:
        ids = find(session)

    def done(row_id: str) -> None:
        database.run(lambda session: do(session, row_id))

    for row_id in ids:
        done(row_id)


def _expired_probes(session: Session) -> list[str]:
    lost = (Probe.state == ProbeState.RUNNING, leases.is_over(Probe.lease_until, now(session)))
    return list(session.scalars(select(Probe.id).where(*lost).order_by(Probe.lease_until).limit(_AT_A_TIME)))


def _idle_searches(session: Session) -> list[str]:
    """Searches that nobody holds and that wait for nothing. This finds some only after a mishap."""
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
        searches.mark_dirty(session, found[1])  # one step too many does no harm


def _unclosed_jobs(session: Session) -> list[str]:
    """Jobs whose searches are over. The last of them ends its job, so this finds some only after a mishap."""
    going = Job.state.in_((JobState.QUEUED, JobState.RUNNING))
    left = select(Search.id).where(Search.job_id == Job.id, Search.stage != Stage.OVER)
    return list(session.scalars(select(Job.id).where(going, ~left.exists()).limit(_AT_A_TIME)))


def _close(session: Session, job_id: str) -> None:
    job = locking.locked(session, job_id)
    if job is not None:
        lifecycle.close(session, job, now(session))
