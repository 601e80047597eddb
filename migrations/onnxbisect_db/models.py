"""The models that a tenant has uploaded."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select
from sqlalchemy.orm import Session

from onnxbisect_db.database import Page, insert, now, page
from onnxbisect_db.errors import InUseError
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, StoredModel


def keep(
    session: Session,
    *,
    tenant: str,
    sha256: str,
    name: str,
    size: int,
    onnx: str | None = None,
    files: Mapping[str, str] | None = None,
) -> StoredModel:
    """Record an upload whose files are stored, of `size` bytes together.

    `onnx` is the SHA-256 of the ONNX file if there are other files. A repeated upload is the same model, with the new
    name. InUseError if a running job reads other files: the same bytes may be divided into files differently.
    """
    at = now(session)
    known = session.get(StoredModel, (tenant, sha256), with_for_update=True, populate_existing=True)
    fresh = {"name": name, "size": size, "onnx": onnx, "files": dict(files or {}), "used_at": at}
    if known is not None and (known.onnx, known.files) != (fresh["onnx"], fresh["files"]):
        going = Job.state.in_([state for state in JobState if not state.ended])
        users = select(Job.id).where(Job.tenant == known.tenant, Job.model_sha256 == known.sha256, going)
        user = session.scalars(users.limit(1)).one_or_none()
        if user is not None:
            raise InUseError(
                f"Job {user} is reading this model with other external data: wait until it has ended, or cancel it."
            )
    kept = (
        insert(session, StoredModel)
        .values(tenant=tenant, sha256=sha256, created_at=at, **fresh)
        .on_conflict_do_update(index_elements=[StoredModel.tenant, StoredModel.sha256], set_=fresh)
        .returning(StoredModel)
    )
    return session.scalars(kept, execution_options={"populate_existing": True}).one()


def get(session: Session, sha256: str, tenant: str) -> StoredModel | None:
    """One of the tenant's models."""
    return session.get(StoredModel, (tenant, sha256))


def list_page(
    session: Session, tenant: str, *, after: tuple[datetime, str] | None = None, limit: int = 50
) -> Page[StoredModel, tuple[datetime, str]]:
    """The tenant's uploaded models, newest first, after `after`."""
    found = select(StoredModel).where(StoredModel.tenant == tenant, of_clients())
    if after is not None:
        at, sha256 = after
        found = found.where(
            or_(StoredModel.created_at < at, and_(StoredModel.created_at == at, StoredModel.sha256 < sha256))
        )
    found = found.order_by(StoredModel.created_at.desc(), StoredModel.sha256.desc())
    return page(session, found, lambda model: (model.created_at, model.sha256), limit=limit)


def of_clients() -> ColumnElement[bool]:
    """A condition for models that were not only stored to compile a culprit with a new version."""
    jobs = exists().where(Job.tenant == StoredModel.tenant, Job.model_sha256 == StoredModel.sha256)
    return or_(~jobs.where(Job.culprit_id.is_not(None)), jobs.where(Job.culprit_id.is_(None)))


def remove(session: Session, sha256: str, tenant: str) -> set[str] | None:
    """Delete a model. Returns its files, which others may need; None if the tenant has no such model.

    InUseError if a job has it.
    """
    model = session.get(StoredModel, (tenant, sha256), with_for_update=True, populate_existing=True)
    if model is None:
        return None
    users = select(Job.id).where(Job.tenant == tenant, Job.model_sha256 == sha256)
    user = session.scalars(users.limit(1)).one_or_none()
    if user is not None:
        raise InUseError(f"Job {user} needs this model: delete the job first.")
    files = model.all_files
    session.execute(delete(StoredModel).where(StoredModel.tenant == tenant, StoredModel.sha256 == sha256))
    return files
