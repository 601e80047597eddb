"""Events of a job, for the page, `/events`, and webhooks; and what `job.finished` says of each target."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_db import deliveries
from onnxbisect_db.states import ANNOUNCED, EventType, JobState
from onnxbisect_db.tables import Event, Job, Search

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


class _EventData(BaseModel):
    model_config = ConfigDict(frozen=True)


class RefusedRow(_EventData):
    """Culprits of the same ops that are refused in the same words, as one row of the report has them."""

    ops: tuple[str, ...]
    places: int
    #: The first line of what the compiler says.
    message: str
    #: Under which condition it refuses them; empty where no more is known than the ops.
    cause: str = ""


class Findings(_EventData):
    """The report of a target in short, stored with its search."""

    headline: str = ""
    refused: tuple[RefusedRow, ...] = ()
    #: How many rows are left out of `refused`.
    more: int = 0


class FinishedTarget(Findings):
    """A target of a job that has a verdict."""

    backend: str
    options: dict[str, Any]
    tool: str
    version: str
    #: None for a target that failed, as `problem` says.
    verdict: Status | None
    problem: str
    #: The verdict of the repaired model; None without a repair.
    repaired: Status | None
    #: What is known of nodes that must stay precise, or why nothing is; empty where it was not asked for.
    precision: str = ""

    @classmethod
    def of(cls, search: Search) -> Self:
        """From the stored search of the target."""
        return cls(
            **dict(Findings.model_validate(search.findings or {})),
            backend=search.backend,
            options=search.options,
            tool=search.tool,
            version=search.version,
            verdict=None if search.verdict is None else Status(search.verdict),
            problem=search.problem,
            precision=(search.precision or {}).get("headline") or (search.precision or {}).get("problem", ""),
            repaired=Status(search.repair["verdict"]) if search.repair and search.repair["verdict"] else None,
        )


class FinishedJob(_EventData):
    """What `job.finished` says beside the facts that every event of a job has."""

    targets: tuple[FinishedTarget, ...]

    @classmethod
    def of(cls, searches: Sequence[Search]) -> "FinishedJob":
        """From the stored searches of the targets."""
        return cls(targets=tuple(map(FinishedTarget.of, searches)))
