"""Tables of culprits, which outlive the jobs that found them."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables.base import Base, new_id


class KnownCulprit(Base):
    """A culprit over all jobs of a tenant. `identity` is its `id` in reports: its ops, their inputs, and the message.

    The other text is from the latest report that has it.
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
    #: What it is given that other variants of its op are given differently; empty if there were none.
    variant: Mapped[str] = mapped_column(default="", server_default="")
    #: The rules by which a repair has replaced it; empty if none has.
    remedy: Mapped[str] = mapped_column(default="")
    first_seen: Mapped[datetime]
    #: When a job last found it.
    last_seen: Mapped[datetime]
    fixed_at: Mapped[datetime | None]


class CulpritVerdict(Base):
    """The verdict of one version of a target on a culprit: `fail` if a job found it or its own file failed."""

    __tablename__ = "culprit_verdict"
    __table_args__ = (
        Index("ix_culprit_verdict_culprit_id_backend_version", "culprit_id", "backend", "version"),
        Index("ix_culprit_verdict_backend_tool", "backend", "tool"),
        Index("ix_culprit_verdict_job_id", "job_id"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    culprit_id: Mapped[str] = mapped_column(ForeignKey("culprit.id", ondelete="CASCADE"))
    #: None after the job was deleted for its age, and if it passed within a model.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="SET NULL"))
    #: Whether a client's job found it in this model. Otherwise its own file was compiled, or it passed within a model.
    found: Mapped[bool]
    backend: Mapped[str] = mapped_column(String(128))
    #: The options as JSON with sorted keys, so that equal options are equal text.
    options: Mapped[str]
    tool: Mapped[str]
    version: Mapped[str]
    status: Mapped[str] = mapped_column(String(16))
    model_sha256: Mapped[str] = mapped_column(String(64))
    model_name: Mapped[str]
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: Compiler seconds of the search, split evenly among its culprits.
    seconds: Mapped[float] = mapped_column(default=0.0)
    #: SHA-256 of the files that reproduce it, by name; kept after the job once for each version of a target.
    files: Mapped[dict[str, Any] | None]
    at: Mapped[datetime]

    @property
    def given(self) -> dict[str, str]:
        """The options."""
        options: dict[str, str] = json.loads(self.options)
        return options


class CompilerVersion(Base):
    """A version of a compiler, and when a search first used it: of two versions, the one met later is newer.

    `id` is a digest of backend, tool and version, because these may be too long for an index.
    """

    __tablename__ = "compiler_version"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    first_seen: Mapped[datetime]
