"""What is remembered of culprits, beyond the jobs that found them."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from onnxbisect_db.columns import new_id
from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables.base import Base


class Culprit(Base):
    """A culprit of all jobs of a tenant. `identity` is the `id` that reports give it: its ops, what they are given, and
    the compiler's complaint. The other words are those of the latest report that has it.
    """

    __tablename__ = "culprit"
    __table_args__ = (UniqueConstraint("tenant", "identity"), Index("ix_culprit_tenant_id", "tenant", "id"))

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64))
    identity: Mapped[str] = mapped_column(String(80))
    state: Mapped[str] = mapped_column(String(16), default=CulpritState.OPEN)
    kind: Mapped[str] = mapped_column(String(16))
    ops: Mapped[list[Any]]
    failure: Mapped[str] = mapped_column(String(16))
    message: Mapped[str]
    cause: Mapped[str]
    #: The rules by which a repair has replaced it; empty where none has.
    remedy: Mapped[str] = mapped_column(default="")
    first_seen: Mapped[datetime]
    #: When a job last found it.
    last_seen: Mapped[datetime]
    fixed_at: Mapped[datetime | None]


class CulpritVerdict(Base):
    """What one version of a target says of a culprit: `fail` where a job found it, or a compile of its own file did."""

    __tablename__ = "culprit_verdict"
    __table_args__ = (
        Index("ix_culprit_verdict_culprit_id_backend_version", "culprit_id", "backend", "version"),
        Index("ix_culprit_verdict_backend_tool", "backend", "tool"),
        Index("ix_culprit_verdict_job_id", "job_id"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    culprit_id: Mapped[str] = mapped_column(ForeignKey("culprit.id", ondelete="CASCADE"))
    #: None once the job was deleted by its age, and where it passed within a model.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="SET NULL"))
    #: Whether a job of a client found it in this model. Else its own file was asked about, or it passed within a model.
    found: Mapped[bool]
    backend: Mapped[str] = mapped_column(String(128))
    #: The options as JSON with sorted keys: equal where they are the same.
    options: Mapped[str]
    tool: Mapped[str]
    version: Mapped[str]
    status: Mapped[str] = mapped_column(String(16))
    model_sha256: Mapped[str] = mapped_column(String(64))
    model_name: Mapped[str]
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: Compiler seconds of the search, split evenly among its culprits.
    seconds: Mapped[float] = mapped_column(default=0.0)
    #: SHA-256 of the files that reproduce it, by name. They outlive their job once for each version of a target.
    files: Mapped[dict[str, Any] | None]
    at: Mapped[datetime]

    @property
    def given(self) -> dict[str, str]:
        """The options."""
        options: dict[str, str] = json.loads(self.options)
        return options
