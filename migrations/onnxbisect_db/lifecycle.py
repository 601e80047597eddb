"""How jobs start and end. Each change writes its event and webhook deliveries in the same transaction."""

from datetime import datetime
from typing import Literal

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_db import events, locking, notices, trouble
from onnxbisect_db.database import now
from onnxbisect_db.errors import JobStateError
from onnxbisect_db.events import FinishedJob
from onnxbisect_db.states import EventType, JobState, ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Search

_WORST_FIRST = (Status.FAIL, Status.UNRESOLVED, Status.PASS)


def searches_of(session: Session, job: Job) -> list[Search]:
    """The searches of a locked job: its targets first, then those of repairs."""
    mine = select(Search).where(Search.job_id == job.id).order_by(Search.ordinal)
    return list(session.scalars(mine, execution_options={"populate_existing": True}))


def targets_of(session: Session, job: Job) -> list[Search]:
    """The searches of the targets of a locked job."""
    return [search for search in searches_of(session, job) if search.asked_for is None]


def start(session: Session, job: Job, at: datetime) -> None:
    """Mark the job as running when its first work is claimed."""
    if job.state == JobState.QUEUED:
        job.state = JobState.RUNNING
        job.started_at = at
        events.tell(session, job, EventType.JOB_STARTED, at)


def close(session: Session, job: Job, at: datetime) -> bool:
    """End the job if all its searches have ended.

    It failed if every search did; otherwise the verdict is the worst one, and a target without an answer is unresolved.
    """
    session.flush()
    searches = targets_of(session, job)
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
    events.tell(session, job, EventType.JOB_FINISHED, at, **FinishedJob.of(searches).model_dump(mode="json"))
    return True


def cancel(session: Session, job_id: str, tenant: str) -> Job | None:
    """End the job now. Workers notice at their next heartbeat.

    None if the tenant has no such job, JobStateError if it has ended by itself; cancelling again has no effect.
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
    """Repeat what has no verdict, after the job has ended. Kept verdicts cost nothing.

    Targets with a verdict keep their reports; unresolved ones have none. A failed or cancelled repair continues, and so
    does a search for nodes that must stay precise. A repeated target is a new search. None if the tenant has no such
    job, JobStateError if nothing is to be repeated.
    """
    job = _mine(session, job_id, tenant)
    if job is None:
        return None
    if not JobState(job.state).ended:
        raise JobStateError(f"Only a job that has ended can be retried; this one is {job.state}.")
    targets = targets_of(session, job)
    to_repair = [search for search in targets if _lacks(search, job, Stage.REPAIR)]
    to_measure = [it for it in targets if _lacks(it, job, Stage.PRECISION) and it not in to_repair]
    settled = [it for it in targets if it.state == JobState.DONE and it.verdict != Status.UNRESOLVED]
    again = [search for search in targets if search not in [*settled, *to_repair, *to_measure]]
    if not again and not to_repair and not to_measure:
        raise JobStateError("There is nothing to retry: every target of the job has a verdict.")
    at = now(session)
    job.state, job.problem, job.verdict = JobState.QUEUED, "", None
    job.started_at = job.ended_at = job.served_at = None
    for search in to_repair:
        session.execute(delete(Search).where(Search.asked_for == search.id, Search.state != JobState.DONE))
        search.stage, search.repair = Stage.REPAIR, None
        if (search.precision or {}).get("problem"):  # it is tried again, too
            search.precision = None
        _queue(session, search)
    for search in to_measure:
        search.stage, search.precision = Stage.PRECISION, None
        _queue(session, search)
    for search in again:
        begin_again(session, search)
    events.tell(session, job, EventType.JOB_QUEUED, at)
    return job


def begin_again(session: Session, search: Search) -> None:
    """Replace the search of a target by a new one. Kept verdicts cost nothing."""
    new = Search(job_id=search.job_id, ordinal=search.ordinal, backend=search.backend, options=search.options)
    session.execute(delete(Search).where(Search.asked_for == search.id))
    session.delete(search)
    session.flush()  # ordinals are unique within a job
    session.add(new)
    notices.notify(session, notices.backend(new.backend))


def _queue(session: Session, search: Search) -> None:
    """Let a search that has ended go on at its stage."""
    search.state, search.ended_at, search.dirty = JobState.QUEUED, None, True
    trouble.forget(search)
    notices.notify_of(session, search)


def _lacks(search: Search, job: Job, stage: Literal[Stage.REPAIR, Stage.PRECISION]) -> bool:
    """Whether it has a report, but not what this later stage was to give."""
    if job.request.get(stage.value) is None or search.report is None or search.verdict == Status.UNRESOLVED:
        return False
    outcome = search.repair if stage is Stage.REPAIR else search.precision
    return outcome is None or bool(outcome["problem"])


def drop_probes(session: Session, search: Search) -> None:
    """Drop the open probes of this search."""
    open_states = (ProbeState.QUEUED, ProbeState.RUNNING)
    mine = (Probe.search_id == search.id, Probe.state.in_(open_states))
    session.execute(update(Probe).where(*mine).values(state=ProbeState.DROPPED, lease_until=None))


def _mine(session: Session, job_id: str, tenant: str) -> Job | None:
    job = locking.locked(session, job_id)
    return job if job is not None and job.tenant == tenant else None
