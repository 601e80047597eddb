"""Events of a job, for the page, `/events`, and webhooks."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from onnxbisect_db import deliveries
from onnxbisect_db.states import ANNOUNCED, EventType, JobState
from onnxbisect_db.tables import Event, Job

#: Events announced for a job that compiles a known culprit again.
_OF_CULPRITS = (EventType.CULPRIT_FIXED, EventType.CULPRIT_RETURNED)


def tell(session: Session, job: Job, kind: EventType, at: datetime, **data: Any) -> None:
    """Write an event, and deliveries to all webhooks that want it, in the transaction of the change.

    The job must be locked, so that events are numbered in the order in which they become visible, and readers that
    continue from a number miss none.
    """
    job.events += 1
    session.add(Event(job_id=job.id, number=job.events, type=kind, data=data, created_at=at))
    if kind in ANNOUNCED and (job.culprit_id is None or kind in _OF_CULPRITS):
        facts = {
            "job": job.id,
            "model": job.model_name,
            "state": job.state,
            "verdict": job.verdict,
            "labels": job.labels,
        }
        deliveries.announce(session, kind, {**facts, **data}, at, tenant=job.tenant, job_id=job.id)


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """The number of a job's events, and whether it has ended."""

    events: int
    ended: bool


def progress(session: Session, job_ids: Collection[str]) -> dict[str, JobProgress]:
    """The progress of these jobs; deleted ones are left out."""
    known = select(Job.id, Job.events, Job.state).where(Job.id.in_(job_ids))
    return {
        job_id: JobProgress(events=count, ended=JobState(state).ended)
        for job_id, count, state in session.execute(known)
    }


def after(session: Session, job_id: str, number: int, limit: int = 1000) -> list[Event]:
    """The events of a job after event `number`, oldest first; 0 starts at the beginning."""
    found = select(Event).where(Event.job_id == job_id, Event.number > number).order_by(Event.number).limit(limit)
    return list(session.scalars(found))
