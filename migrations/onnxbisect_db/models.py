"""The models that a tenant has uploaded."""

from collections.abc import Mapping

from sqlalchemy.orm import Session

from onnxbisect_db.database import now
from onnxbisect_db.insertion import insert
from onnxbisect_db.tables import Model


def keep(
    session: Session, *, tenant: str, sha256: str, name: str, size: int, files: Mapping[str, str] | None = None
) -> Model:
    """Note an upload whose files are in place. Uploading it again is the same model, with the new name and files."""
    at = now(session)
    fresh = {"name": name, "size": size, "files": dict(files or {}), "used_at": at}
    kept = (
        insert(session, Model)
        .values(tenant=tenant, sha256=sha256, created_at=at, **fresh)
        .on_conflict_do_update(index_elements=[Model.tenant, Model.sha256], set_=fresh)
        .returning(Model)
    )
    return session.scalars(kept, execution_options={"populate_existing": True}).one()


def get(session: Session, sha256: str, tenant: str) -> Model | None:
    """A model of the tenant's."""
    return session.get(Model, (tenant, sha256))
