"""Jobs: created once per request, listed in pages."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, func, or_, select, update
from sqlalchemy.orm import Session, selectinload

from onnxbisect.verdict import Status
from onnxbisect_db import endpoints, events, notices, uploads
from onnxbisect_db.database import Page, insert, now, page
from onnxbisect_db.errors import IdempotencyError, UnknownModelError
from onnxbisect_db.states import EventType, JobState, WebhookFormat
from onnxbisect_db.tables import Job, Label, Search, StoredModel
from onnxbisect_db.tables.base import new_id

#: How long an idempotency key is valid.
_KEY_LASTS = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class NewTarget:
    """A backend and its options."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A client's request. `request` has everything besides targets, `files` are the stored files that it names."""

    model_sha256: str
    targets: tuple[NewTarget, ...]
    request: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    webhook: str | None = None
    webhook_events: tuple[EventType, ...] = ()
    webhook_format: WebhookFormat = WebhookFormat.JSON
    webhook_secret: str | None = None

    def digest(self) -> str:
        """A digest that is equal for equal requests."""
        asked = asdict(self)
        if self.webhook_format is WebhookFormat.JSON:  # as of requests from before there were chats
            del asked["webhook_format"], asked["webhook_secret"]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs to list; None matches all.

    `text` is a part of the model's name, in any case, or a prefix of its SHA-256 or of the job's id.
    """

    state: JobState | None = None
    verdict: Status | None = None
    model_sha256: str | None = None
    text: str | None = None
    backend: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Created:
    """A job, and whether it is new."""

    job: Job
    new: bool


def create(session: Session, wanted: NewJob, *, tenant: str, idempotency_key: str | None = None) -> Created:
    """Create a job, or return the one created with the same key and request before.

    UnknownModelError or UnknownFileError for files that the tenant has not uploaded, IdempotencyError for another
    request with the key.
    """
    at = now(session)
    if idempotency_key is not None:
        expired = (Job.idempotency_key == idempotency_key, Job.created_at < at - _KEY_LASTS)
        session.execute(update(Job).where(Job.tenant == tenant, *expired).values(idempotency_key=None))
    model = session.get(StoredModel, (tenant, wanted.model_sha256), with_for_update=True, populate_existing=True)
    if model is None:
        raise UnknownModelError(f"There is no model {wanted.model_sha256}: upload it first.")
    model.used_at = at
    uploads.use(session, wanted.files, tenant, at)
    job_id, digest = new_id(), wanted.digest()
    made = session.scalars(
        insert(session, Job)
        .values(
            id=job_id,
            tenant=tenant,
            model_sha256=wanted.model_sha256,
            model_name=model.name,
            request=dict(wanted.request),
            files=list(wanted.files),
            labels=dict(wanted.labels),
            priority=wanted.priority,
            idempotency_key=idempotency_key,
            idempotency_sha256=digest,
            created_at=at,
        )
        .on_conflict_do_nothing(index_elements=[Job.tenant, Job.idempotency_key])
        .returning(Job.id)
    ).one_or_none()
    if made is None:
        same_key = _with_searches().where(Job.tenant == tenant, Job.idempotency_key == idempotency_key)
        job = session.scalars(same_key).one()
        if job.idempotency_sha256 != digest:
            raise IdempotencyError(
                f"The idempotency key was used for another request, which made job {job.id}: use a new key."
            )
        return Created(job=job, new=False)
    _add_searches(session, wanted, job_id, tenant)
    events.tell(session, session.get_one(Job, job_id), EventType.JOB_QUEUED, at)
    session.flush()
    return Created(job=session.scalars(_with_searches().where(Job.id == job_id)).one(), new=True)


def _add_searches(session: Session, wanted: NewJob, job_id: str, tenant: str) -> None:
    """Add what belongs to a new job: its searches, labels and webhook."""
    for ordinal, target in enumerate(wanted.targets):
        session.add(Search(job_id=job_id, ordinal=ordinal, backend=target.backend, options=dict(target.options)))
        notices.notify(session, notices.backend(target.backend))
    session.add_all(
        Label(job_id=job_id, tenant=tenant, name=name, value=value) for name, value in wanted.labels.items()
    )
    if wanted.webhook is not None:
        endpoints.add(
            session,
            tenant=tenant,
            url=wanted.webhook,
            events=wanted.webhook_events,
            job_id=job_id,
            form=wanted.webhook_format,
            secret=wanted.webhook_secret,
        )


def get(session: Session, job_id: str, tenant: str) -> Job | None:
    """One of the tenant's jobs, with its searches."""
    mine = _with_searches().where(Job.id == job_id, Job.tenant == tenant)
    return session.scalars(mine).one_or_none()


def list_page(
    session: Session, tenant: str, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50
) -> Page[Job, str]:
    """The tenant's jobs with their searches, newest first, after the one with id `after`."""
    wanted = wanted or JobFilter()
    found = _with_searches().where(Job.tenant == tenant, Job.culprit_id.is_(None))
    if after is not None:
        found = found.where(Job.id < after)
    equal = {Job.state: wanted.state, Job.verdict: wanted.verdict, Job.model_sha256: wanted.model_sha256}
    found = found.where(*(column == value for column, value in equal.items() if value is not None))
    if wanted.text is not None:
        begins = [column.startswith(wanted.text.lower(), autoescape=True) for column in (Job.model_sha256, Job.id)]
        found = found.where(or_(Job.model_name.icontains(wanted.text, autoescape=True), *begins))
    if wanted.backend is not None:
        found = found.where(Job.searches.any(Search.backend == wanted.backend))
    for name, value in wanted.labels.items():
        same = (Label.tenant == tenant, Label.name == name, Label.value == value)
        found = found.where(Job.id.in_(select(Label.job_id).where(*same)))
    return page(session, found.order_by(Job.id.desc()), lambda job: job.id, limit=limit)


def going(session: Session, tenant: str) -> int:
    """The number of the tenant's jobs that wait or run."""
    mine = (Job.tenant == tenant, Job.culprit_id.is_(None), Job.state.in_((JobState.QUEUED, JobState.RUNNING)))
    return session.scalars(select(func.count()).select_from(Job).where(*mine)).one()


def _with_searches() -> Select[Job]:
    return select(Job).options(selectinload(Job.searches)).execution_options(populate_existing=True)
