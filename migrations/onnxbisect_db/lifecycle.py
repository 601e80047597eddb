"""How jobs begin and end. Every change here writes its event and its webhook deliveries in the same transaction."""

from datetime import datetime

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_db import bells, events
from onnxbisect_db.database import now
from onnxbisect_db.errors import JobStateError
from onnxbisect_db.states import EventType, JobState, ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Search

#: Jobs that this transaction has locked, and searches that it has read since it locked theirs.
_LOCKED, _READ_LOCKED = "onnxbisect_locked", "onnxbisect_read_locked"
_WORST_FIRST = (Status.FAIL, Status.UNRESOLVED, Status.PASS)


def locked(session: Session, job_id: str) -> Job | None:
    """The job as it is now, kept from all others until the transaction ends. The first thing to do to any part of it.

    Only a queue, a lease, or what `one_at_a_time` keeps may be locked before, which is why no two transactions wait for
    each other. Who has locked it already need not ask for it again: a session is one transaction.
    """
    locked_already = _noted(session, _LOCKED)
    if job_id in locked_already:
        return session.get(Job, job_id)
    session.flush()
    locked_already.add(job_id)
    return session.get(Job, job_id, with_for_update=True, populate_existing=True)


def locked_with(session: Session, search_id: str) -> tuple[Job, Search] | None:
    """The job of a search, locked, and the search as it is since then."""
    read_locked = _noted(session, _READ_LOCKED)
    if search_id not in read_locked:
        session.flush()
        job = session.scalars(_JOB_OF, {"search": search_id}, execution_options=_AFRESH).one_or_none()
        if job is None:
            return None
        note_locked(session, job)
    search = session.get_one(Search, search_id, populate_existing=search_id not in read_locked)
    read_locked.add(search_id)
    return session.get_one(Job, search.job_id), search


def note_locked(session: Session, job: Job) -> None:
    """This transaction has locked the job in a statement of its own."""
    _noted(session, _LOCKED).add(job.id)


def searches_of(session: Session, job: Job) -> list[Search]:
    """The searches of a locked job."""
    mine = select(Search).where(Search.job_id == job.id).order_by(Search.ordinal)
    return list(session.scalars(mine, execution_options={"populate_existing": True}))


def start(session: Session, job: Job, at: datetime) -> None:
    """Somebody works on it for the first time."""
    if job.state == JobState.QUEUED:
        job.state = JobState.RUNNING
        job.started_at = at
        events.tell(session, job, EventType.JOB_STARTED, at)


def close(session: Session, job: Job, at: datetime) -> bool:
    """End the job if all its searches are over.

    It failed if every search did; else the verdict is the worst, and a target without an answer is unresolved.
    """
    session.flush()
    searches = searches_of(session, job)
    if JobState(job.state).ended or any(search.stage != Stage.OVER for search in searches):
        return False
    job.ended_at = at
    if all(search.state == JobState.FAILED for search in searches):
        job.state = JobState.FAILED
        job.problem = "; ".join(dict.fromkeys(search.problem for search in searches))
        events.tell(session, job, EventType.JOB_FAILED, at, problem=job.problem)
        return True
    job.state = JobState.DONE
    verdicts = {Status(search.verdict or Status.UNRESOLVED) for search in searches}
    job.verdict = next(status for status in _WORST_FIRST if status in verdicts)
    events.tell(session, job, EventType.JOB_FINISHED, at)
    return True


def cancel(session: Session, job_id: str, tenant: str) -> Job | None:
    """End it now. Workers learn at their next heartbeat that nobody wants what they do.

    None where the tenant has no such job, JobStateError where it has ended by itself; cancelling twice is once.
    """
    job = _mine(session, job_id, tenant)
    if job is None or job.state == JobState.CANCELLED:
        return job
    if JobState(job.state).ended:
        raise JobStateError(f"The job cannot be cancelled: it is {job.state}.")
    at = now(session)
    for search in searches_of(session, job):
        if search.stage != Stage.OVER:
            search.state = JobState.CANCELLED
            search.stage = Stage.OVER
            search.ended_at = at
            search.lease_until = None
            drop_probes(session, search)
    job.state = JobState.CANCELLED
    job.ended_at = at
    job.problem = "cancelled"
    events.tell(session, job, EventType.JOB_FAILED, at, problem=job.problem)
    return job


def retry(session: Session, job_id: str, tenant: str) -> Job | None:
    """Begin it anew after it failed or was cancelled: what compilers answered is in the verdict base and costs nothing.

    The caller rings for its searches. None where the tenant has no such job, JobStateError where there is nothing to
    repeat.
    """
    job = _mine(session, job_id, tenant)
    if job is None:
        return None
    if job.state not in (JobState.FAILED, JobState.CANCELLED):
        raise JobStateError(f"Only jobs that failed or were cancelled can be retried; this one is {job.state}.")
    at = now(session)
    job.state, job.problem, job.verdict = JobState.QUEUED, "", None
    job.started_at = job.ended_at = job.served_at = None
    for search in searches_of(session, job):
        session.execute(delete(Probe).where(Probe.search_id == search.id))
        search.state, search.stage, search.problem, search.verdict = JobState.QUEUED, Stage.PREPARE, "", None
        search.fault = search.identity = search.universe = search.graph = search.report = None
        search.tool, search.version, search.units = "", "", 0
        search.files, search.found = {}, {}
        search.calls, search.round, search.expected, search.losses = 0, 0, 0.0, 0
        search.lease_until = search.started_at = search.ended_at = None
        search.stale = True
        bells.heeded(search)
        bells.rung(search, at)
    events.tell(session, job, EventType.JOB_QUEUED, at)
    return job


def drop_probes(session: Session, search: Search) -> None:
    """Nobody waits for what this search still asks."""
    open_states = (ProbeState.QUEUED, ProbeState.RUNNING)
    mine = (Probe.search_id == search.id, Probe.state.in_(open_states))
    session.execute(update(Probe).where(*mine).values(state=ProbeState.DROPPED, lease_until=None))


def _mine(session: Session, job_id: str, tenant: str) -> Job | None:
    job = locked(session, job_id)
    return job if job is not None and job.tenant == tenant else None


def _noted(session: Session, what: str) -> set[str]:
    noted: set[str] = session.info.setdefault(what, set())
    return noted


_AFRESH = {"populate_existing": True}
_JOB_OF = (
    select(Job)
    .where(Job.id == select(Search.job_id).where(Search.id == bindparam("search")).scalar_subquery())
    .with_for_update()
)
