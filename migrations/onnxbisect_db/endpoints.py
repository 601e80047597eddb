"""Webhook endpoints and their signing secrets."""

import base64
import secrets
from collections.abc import Iterable

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from onnxbisect_db.database import now
from onnxbisect_db.states import CHAT_EVENTS, EventType, WebhookFormat
from onnxbisect_db.tables import Endpoint, Job


def add(
    session: Session,
    *,
    tenant: str,
    url: str,
    events: Iterable[EventType] = (),
    job_id: str | None = None,
    form: WebhookFormat = WebhookFormat.JSON,
    secret: str | None = None,
) -> Endpoint:
    """A new endpoint; no events means all, and `CHAT_EVENTS` for a chat. With `job_id` it gets events of that job only.

    It has a secret of its own, but that of a chat has the `secret` that the chat made, if any.
    """
    chat = form is not WebhookFormat.JSON
    endpoint = Endpoint(
        tenant=tenant,
        url=url,
        secrets=([secret] if secret else []) if chat else [_secret()],
        events=sorted(set(events) or (CHAT_EVENTS if chat else ())),
        format=form,
        job_id=job_id,
        created_at=now(session),
    )
    session.add(endpoint)
    session.flush()
    return endpoint


def made_here(endpoint: Endpoint | None) -> str | None:
    """The newest secret that signs its messages, to be shown once; None for a chat, which makes its own."""
    return None if endpoint is None or endpoint.format != WebhookFormat.JSON else endpoint.secrets[0]


def list_all(session: Session, tenant: str) -> list[Endpoint]:
    """The tenant's endpoints, newest first, without those of single jobs."""
    mine = select(Endpoint).where(Endpoint.tenant == tenant, Endpoint.job_id.is_(None))
    return list(session.scalars(mine.order_by(Endpoint.id.desc())))


def get(session: Session, endpoint_id: str, tenant: str) -> Endpoint | None:
    """One of the tenant's endpoints."""
    return session.scalars(select(Endpoint).where(Endpoint.id == endpoint_id, Endpoint.tenant == tenant)).one_or_none()


def of_job(session: Session, job_id: str) -> Endpoint | None:
    """The endpoint of a job."""
    return session.scalars(select(Endpoint).where(Endpoint.job_id == job_id)).one_or_none()


def of_jobs(session: Session, jobs: Iterable[Job]) -> dict[str, str]:
    """The endpoint ids of those jobs that have one."""
    mine = {job.id: job.tenant for job in jobs}
    found = select(Endpoint.job_id, Endpoint.id).where(Endpoint.tenant.in_({*mine.values()}), Endpoint.job_id.in_(mine))
    return {job_id: endpoint_id for job_id, endpoint_id in session.execute(found) if job_id is not None}


def rotate(session: Session, endpoint_id: str, tenant: str) -> Endpoint | None:
    """Add a new secret. The previous one also signs until the next rotation or `retire`."""
    endpoint = _locked(session, endpoint_id, tenant)
    if endpoint is not None:
        endpoint.secrets = [_secret(), *endpoint.secrets[:1]]
    return endpoint


def retire(session: Session, endpoint_id: str, tenant: str) -> Endpoint | None:
    """Sign with the newest secret only."""
    endpoint = _locked(session, endpoint_id, tenant)
    if endpoint is not None:
        endpoint.secrets = endpoint.secrets[:1]
    return endpoint


def enable(session: Session, endpoint_id: str, tenant: str) -> Endpoint | None:
    """Re-enable a disabled endpoint. Failed deliveries stay failed; `deliveries.redeliver` sends them."""
    endpoint = _locked(session, endpoint_id, tenant)
    if endpoint is not None:
        endpoint.disabled_at = endpoint.failing_since = None
        endpoint.disabled_because = ""
    return endpoint


def remove(session: Session, endpoint_id: str, tenant: str) -> bool:
    """Delete it with its deliveries."""
    gone = delete(Endpoint).where(Endpoint.id == endpoint_id, Endpoint.tenant == tenant).returning(Endpoint.id)
    return session.scalars(gone).one_or_none() is not None


def _locked(session: Session, endpoint_id: str, tenant: str) -> Endpoint | None:
    mine = select(Endpoint).where(Endpoint.id == endpoint_id, Endpoint.tenant == tenant)
    return session.scalars(mine.with_for_update(key_share=True)).one_or_none()


def _secret() -> str:
    """A secret as the Standard Webhooks specification requires."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
