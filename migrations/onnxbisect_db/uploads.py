"""A tenant's uploaded files besides models, and its total storage."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from onnxbisect_db import models
from onnxbisect_db.database import insert, now
from onnxbisect_db.errors import UnknownFileError
from onnxbisect_db.tables import StoredModel, Upload


def keep(session: Session, *, tenant: str, sha256: str, size: int) -> Upload:
    """Record a stored file."""
    at = now(session)
    kept = (
        insert(session, Upload)
        .values(tenant=tenant, sha256=sha256, size=size, created_at=at, used_at=at)
        .on_conflict_do_update(index_elements=[Upload.tenant, Upload.sha256], set_={"used_at": at})
        .returning(Upload)
    )
    return session.scalars(kept, execution_options={"populate_existing": True}).one()


def get(session: Session, sha256: str, tenant: str) -> Upload | None:
    """A file of the tenant; None if there is none."""
    return session.get(Upload, (tenant, sha256))


def use(session: Session, names: Iterable[str], tenant: str, at: datetime) -> None:
    """Mark these files as used by a job; UnknownFileError for one that the tenant has not uploaded.

    Knowing the hash of another tenant's file gives no access to it.
    """
    wanted = set(names)
    mine = (Upload.tenant == tenant, Upload.sha256.in_(wanted))
    used = set(session.scalars(update(Upload).where(*mine).values(used_at=at).returning(Upload.sha256)))
    for unknown in sorted(wanted - used):
        raise UnknownFileError(f"There is no file {unknown}: upload it first.")


def remove(session: Session, sha256: str, tenant: str) -> bool:
    """Delete the tenant's reference; jobs that name the file keep it. False if the tenant has no such file."""
    gone = delete(Upload).where(Upload.tenant == tenant, Upload.sha256 == sha256).returning(Upload.sha256)
    return session.scalars(gone).one_or_none() is not None


def kept_bytes(session: Session, tenant: str) -> int:
    """The bytes of all models and files of the tenant."""
    sizes = (
        select(func.sum(StoredModel.size)).where(StoredModel.tenant == tenant, models.of_clients()),
        select(func.sum(Upload.size)).where(Upload.tenant == tenant),
    )
    return sum(int(session.scalars(size).one() or 0) for size in sizes)
