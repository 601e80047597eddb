"""The tables. docs/service.md draws how a job goes through them."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, Integer, MetaData, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from onnxbisect_db.columns import Moment, new_id
from onnxbisect_db.states import DeliveryState, JobState, ProbeState, Stage

#: Without names of our own, SQLite's constraints have none and cannot be migrated.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The tables' registry."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {datetime: Moment(), dict[str, Any]: JSON(), list[Any]: JSON(), str: Text()}  # noqa: RUF012


class Token(Base):
    """Someone's right to use the service. `secret_sha256` is all that is known of the secret.

    `tenant` owns what the token makes; verdicts are shared within one.
    """

    __tablename__ = "token"

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64), default="")
    name: Mapped[str]
    secret_sha256: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]


class Model(Base):
    """An uploaded model that a tenant may use: one file, or one file and those that its external data is in.

    `sha256` is of the ONNX file; `files` maps each location in it to the SHA-256 of a content-addressed file.
    """

    __tablename__ = "model"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    size: Mapped[int]
    files: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[datetime]


class Job(Base):
    """One model on one or more targets. `verdict` is pass, fail or unresolved once it is done."""

    __tablename__ = "job"
    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        Index("ix_job_tenant_id", "tenant", "id"),
        Index("ix_job_state", "state"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64), default="")
    model_sha256: Mapped[str] = mapped_column(String(64))
    model_name: Mapped[str]
    #: What was asked for besides targets: input_shapes, budget, calibration, seconds for a compile, recheck.
    request: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default=JobState.QUEUED)
    verdict: Mapped[str | None] = mapped_column(String(16))
    #: Why it failed, as a sentence.
    problem: Mapped[str] = mapped_column(default="")
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    #: SHA-256 of the request that came with the key: another request under it is a mistake.
    idempotency_sha256: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    searches: Mapped[list["Search"]] = relationship(back_populates="job", order_by="Search.ordinal")


class Search(Base):
    """One target of a job: what the coordinator works on.

    `identity` names compiler, version, options and dressing, and is what verdicts are kept under; `universe` and
    `report` are SHA-256 of content-addressed files. A task holds the search while `lease_until` lies ahead; `turn`
    counts the holders, so that what a lost one writes later changes nothing.
    """

    __tablename__ = "search"
    __table_args__ = (
        UniqueConstraint("job_id", "ordinal"),
        Index("ix_search_stage_lease_until", "stage", "lease_until"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    ordinal: Mapped[int]
    backend: Mapped[str] = mapped_column(String(128))
    options: Mapped[dict[str, Any]] = mapped_column(default=dict)
    state: Mapped[str] = mapped_column(String(16), default=JobState.QUEUED)
    stage: Mapped[str] = mapped_column(String(16), default=Stage.PREPARE)
    verdict: Mapped[str | None] = mapped_column(String(16))
    problem: Mapped[str] = mapped_column(default="")
    identity: Mapped[str | None] = mapped_column(String(64))
    tool: Mapped[str] = mapped_column(default="")
    version: Mapped[str] = mapped_column(default="")
    universe: Mapped[str | None] = mapped_column(String(64))
    report: Mapped[str | None] = mapped_column(String(64))
    #: Calls done, calls probably left, and how many culprits stand: what a list of jobs shows.
    calls: Mapped[int] = mapped_column(default=0)
    expected: Mapped[float] = mapped_column(default=0.0)
    culprits: Mapped[int] = mapped_column(default=0)
    turn: Mapped[int] = mapped_column(default=0)
    lease_until: Mapped[datetime | None]
    #: When the queue was last told of it.
    rung_at: Mapped[datetime | None]
    #: Something has changed since the holder of the lease looked.
    stale: Mapped[bool] = mapped_column(default=True)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    job: Mapped[Job] = relationship(back_populates="searches")


class Probe(Base):
    """One question of a search: compile these units, for the nth time.

    `units` is the unit set in hexadecimal. A worker claims it with a lease and renews that; `claims` counts the
    workers, and only the one that holds the latest claim may answer.
    """

    __tablename__ = "probe"
    __table_args__ = (
        UniqueConstraint("search_id", "units_sha256", "attempt"),
        Index("ix_probe_state_lease_until", "state", "lease_until"),
        Index("ix_probe_backend_state_priority", "backend", "state", "priority"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    search_id: Mapped[str] = mapped_column(ForeignKey("search.id", ondelete="CASCADE"))
    backend: Mapped[str] = mapped_column(String(128))
    units: Mapped[str]
    units_sha256: Mapped[str] = mapped_column(String(64))
    attempt: Mapped[int]
    why: Mapped[str]
    speculative: Mapped[bool] = mapped_column(default=False)
    round: Mapped[int]
    #: Of the job, less the probes that the job has running: a small job is not stuck behind a large one.
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default=ProbeState.QUEUED)
    claims: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str] = mapped_column(String(128), default="")
    lease_until: Mapped[datetime | None]
    rung_at: Mapped[datetime | None]
    key: Mapped[str | None] = mapped_column(String(64))
    #: The answer: a verdict as JSON, the bytes compiled, whether a compiler ran, and the compiler's log.
    verdict: Mapped[dict[str, Any] | None]
    file_sha256: Mapped[str] = mapped_column(String(64), default="")
    cached: Mapped[bool] = mapped_column(default=False)
    engine_seconds: Mapped[float] = mapped_column(default=0.0)
    log: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class KeptVerdict(Base):
    """The verdict base: what compilers answered, for every later job of the tenant."""

    __tablename__ = "kept_verdict"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    identity: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    verdict: Mapped[dict[str, Any]]
    file_sha256: Mapped[str] = mapped_column(String(64), default="")
    log: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime]


class Event(Base):
    """What happened to a job, in order: the page and `/events` read it."""

    __tablename__ = "event"
    __table_args__ = (Index("ix_event_job_id_id", "job_id", "id"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    type: Mapped[str] = mapped_column(String(64))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class Endpoint(Base):
    """Where webhooks go. `secrets` are the signing secrets, the newest first: while one is rotated, both sign."""

    __tablename__ = "endpoint"

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64), default="")
    url: Mapped[str]
    secrets: Mapped[list[Any]]
    events: Mapped[list[Any]]
    #: Of one job only, where the job named a webhook of its own.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]
    #: Why, as a sentence.
    disabled_because: Mapped[str] = mapped_column(default="")


class Delivery(Base):
    """One webhook message to one endpoint: written in the transaction of the change that it tells of.

    `id` is the message's id on every attempt.
    """

    __tablename__ = "delivery"
    __table_args__ = (Index("ix_delivery_state_due_at", "state", "due_at"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoint.id", ondelete="CASCADE"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="SET NULL"))
    type: Mapped[str] = mapped_column(String(64))
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16), default=DeliveryState.PENDING)
    #: Every try: when, status, milliseconds, the beginning of the answer.
    tries: Mapped[list[Any]] = mapped_column(default=list)
    due_at: Mapped[datetime]
    lease_until: Mapped[datetime | None]
    created_at: Mapped[datetime]


class Worker(Base):
    """A process that takes probes, as it last told of itself."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    backends: Mapped[list[Any]]
    #: Tool and version of each backend, or the sentence that says why it cannot be used.
    tools: Mapped[dict[str, Any]] = mapped_column(default=dict)
    slots: Mapped[int] = mapped_column(default=1)
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class Lease(Base):
    """Something that one process at a time may do, such as reconciling."""

    __tablename__ = "lease"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(128), default="")
    until: Mapped[datetime]
