"""Tables of models, and of the jobs that diagnose them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from onnxbisect_db.states import JobState, ProbeState, Stage
from onnxbisect_db.tables.base import Base, Leased, Troubled, new_id


class Worker(Base):
    """A worker process, as of its last heartbeat."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    backends: Mapped[list[Any]]
    #: Tool and version of each backend, or a sentence why it is unusable.
    tools: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The backends whose tool is unusable there.
    unusable: Mapped[list[Any]]
    #: The isolation of compiles on that machine, by backend.
    isolation: Mapped[dict[str, Any]]
    slots: Mapped[int] = mapped_column(default=1)
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class Queue(Base):
    """The queue of one backend. If it has a limit, a claim locks this row."""

    __tablename__ = "queue"

    backend: Mapped[str] = mapped_column(String(128), primary_key=True)
    #: How many of its probes may run at a time, such as licence seats; None for no limit.
    at_most: Mapped[int | None]


class Lease(Base):
    """A task of one process at a time, such as reconciling."""

    __tablename__ = "lease"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(128), default="")
    until: Mapped[datetime]


_CLAIMABLE = text("dirty OR lease_until IS NOT NULL")


class Uploaded:
    """What a tenant has uploaded."""

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    #: Bytes of all its files.
    size: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    #: When it was last uploaded or named by a job: what retention counts from.
    used_at: Mapped[datetime]


class StoredModel(Uploaded, Base):
    """An uploaded model of a tenant: one file, or one file and its external data.

    `sha256` is of all its bytes: the ONNX file, then the data in the order of locations. Each is a content-addressed
    file; `files` maps locations to SHA-256.
    """

    __tablename__ = "model"

    name: Mapped[str]
    #: SHA-256 of the ONNX file, if the model has external data.
    onnx: Mapped[str | None] = mapped_column(String(64))
    files: Mapped[dict[str, Any]] = mapped_column(default=dict)

    @property
    def onnx_file(self) -> str:
        """The SHA-256 under which the ONNX file is stored."""
        return self.onnx or self.sha256

    @property
    def all_files(self) -> set[str]:
        """The SHA-256 of all its stored files."""
        return {self.onnx_file, *self.files.values()}


class Upload(Uploaded, Base):
    """An uploaded file that a tenant's jobs may name, such as a calibration sample."""

    __tablename__ = "upload"


class UnneededFile(Base):
    """A stored file without references, until it is deleted.

    A client that has just stored the same bytes may not have referenced them yet.
    """

    __tablename__ = "unneeded_file"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    since: Mapped[datetime]


class Job(Base):
    """One model on one or more targets. `verdict` is pass, fail or unresolved once it has ended.

    A transaction that changes anything of a job, including its searches and probes, locks this row first, so
    transactions of one job run in sequence.
    """

    __tablename__ = "job"
    __table_args__ = (
        ForeignKeyConstraint(["tenant", "model_sha256"], ["model.tenant", "model.sha256"]),
        UniqueConstraint("tenant", "idempotency_key"),
        Index("ix_job_tenant_id", "tenant", "id"),
        Index("ix_job_tenant_model_sha256_id", "tenant", "model_sha256", "id"),
        Index("ix_job_state_ended_at", "state", "ended_at"),
        Index("ix_job_culprit_id", "culprit_id"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    tenant: Mapped[str] = mapped_column(String(64), default="")
    model_sha256: Mapped[str] = mapped_column(String(64))
    model_name: Mapped[str]
    #: The request besides targets: input_shapes, budget, calibration, seconds for a compile, recheck.
    request: Mapped[dict[str, Any]]
    #: SHA-256 of the stored files that `request` names.
    files: Mapped[list[Any]] = mapped_column(default=list)
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    priority: Mapped[int] = mapped_column(default=0)
    #: For a job without a client: the culprit whose own file it compiles with a version without a verdict on it. Lists
    #: leave the job out, and webhooks get only events of the culprit.
    culprit_id: Mapped[str | None] = mapped_column(String(36))
    state: Mapped[str] = mapped_column(String(16), default=JobState.QUEUED)
    verdict: Mapped[str | None] = mapped_column(String(16))
    #: Why it failed, as a sentence.
    problem: Mapped[str] = mapped_column(default="")
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    #: SHA-256 of the request with the key; another request with the key is an error.
    idempotency_sha256: Mapped[str | None] = mapped_column(String(64))
    #: The number of its events.
    events: Mapped[int] = mapped_column(default=0)
    #: When a worker last claimed a probe of it; among equal jobs, the least recently served is next.
    served_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    #: Its targets, without the searches of changed models.
    searches: Mapped[list["Search"]] = relationship(
        primaryjoin="and_(Job.id == Search.job_id, Search.asked_for.is_(None))",
        back_populates="job",
        order_by="Search.ordinal",
        lazy="raise",
        passive_deletes="all",
    )


class Label(Base):
    """A label of a job, as in `Job.labels`, indexed for filters."""

    __tablename__ = "label"
    __table_args__ = (Index("ix_label_tenant_name_value_job_id", "tenant", "name", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64))
    value: Mapped[str] = mapped_column(String(255))


class Search(Leased, Troubled, Base):
    """One target of a job, which the coordinator works on; or a changed model that a target asks about.

    In the latter case `asked_for` is the target's search, `onnx` and `data` are the model's files, `request` is its
    request, and `question` the target's name for it.

    `identity` names compiler, version, options and probe format, under which verdicts are kept. `universe`, `graph`,
    `report` and the values of `files` are SHA-256 of stored files.
    """

    __tablename__ = "search"
    __table_args__ = (
        UniqueConstraint("job_id", "ordinal"),
        Index("ix_search_stage_backend", "stage", "backend"),
        Index("ix_search_universe_identity", "universe", "identity"),
        Index("ix_search_claimed_at", "claimed_at"),
        Index("ix_search_asked_for", "asked_for"),
        # searches that a worker may claim or holds, of which there are few among ten thousand that wait for answers
        Index("ix_search_lease_until", "lease_until", postgresql_where=_CLAIMABLE, sqlite_where=_CLAIMABLE),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    ordinal: Mapped[int]
    asked_for: Mapped[str | None] = mapped_column(String(36))
    question: Mapped[str | None] = mapped_column(String(80))
    onnx: Mapped[str | None] = mapped_column(String(64))
    data: Mapped[dict[str, Any] | None]
    request: Mapped[dict[str, Any] | None]
    backend: Mapped[str] = mapped_column(String(128))
    options: Mapped[dict[str, Any]] = mapped_column(default=dict)
    state: Mapped[str] = mapped_column(String(16), default=JobState.QUEUED)
    stage: Mapped[str] = mapped_column(String(16), default=Stage.PREPARE)
    verdict: Mapped[str | None] = mapped_column(String(16))
    problem: Mapped[str] = mapped_column(default="")
    #: Who can mend its failure; None if it did not fail.
    fault: Mapped[str | None] = mapped_column(String(16))
    identity: Mapped[str | None] = mapped_column(String(64))
    tool: Mapped[str] = mapped_column(default="")
    version: Mapped[str] = mapped_column(default="")
    universe: Mapped[str | None] = mapped_column(String(64))
    #: The number of units of the universe.
    units: Mapped[int] = mapped_column(default=0)
    #: The data for pictures of the model; None if there are none.
    graph: Mapped[str | None] = mapped_column(String(64))
    report: Mapped[str | None] = mapped_column(String(64))
    #: The report in short (`Findings`); None before there is one.
    findings: Mapped[dict[str, Any] | None]
    #: Files of the report by path: the culprits' models, and the files of a repair.
    files: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The change of the whole file after which it compiles (`CompilesAfter`), {} if none helps or none is to be tried,
    #: only a `problem` if trying them failed; only `file_after`, the change, if the search went on in a changed
    #: file, which `onnx`, `data` and `request` are of then; None before that is known.
    compiles_after: Mapped[dict[str, Any] | None]
    #: The outcome of its repair in short; None if there is none, or not yet.
    repair: Mapped[dict[str, Any] | None]
    #: The outcome of its search for nodes that must stay precise in short (`measurements.PreciseNodes`); None if there
    #: is none, or not yet.
    precision: Mapped[dict[str, Any] | None]
    #: Compiler calls done, their highest round, and the probable number of further calls.
    calls: Mapped[int] = mapped_column(default=0)
    round: Mapped[int] = mapped_column(default=0)
    expected: Mapped[float] = mapped_column(default=0.0)
    #: A short description of each current culprit, by a stable name.
    found: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The worker of the latest claim.
    worker: Mapped[str | None] = mapped_column(String(128))
    #: When it was last claimed; the least recently served is next.
    claimed_at: Mapped[datetime | None]
    #: Something has changed since it was last claimed.
    dirty: Mapped[bool] = mapped_column(default=True)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    job: Mapped[Job] = relationship(back_populates="searches", lazy="raise")


class Probe(Leased, Troubled, Base):
    """One probe of a search: compile these units, a unit set in hexadecimal, in attempt n."""

    __tablename__ = "probe"
    __table_args__ = (
        UniqueConstraint("search_id", "units_sha256", "attempt"),
        Index("ix_probe_search_id_state_speculative_rank", "search_id", "state", "speculative", "rank"),
        Index("ix_probe_state_lease_until", "state", "lease_until"),
        Index("ix_probe_key", "key"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True, default=new_id)
    search_id: Mapped[str] = mapped_column(ForeignKey("search.id", ondelete="CASCADE"))
    units: Mapped[str]
    units_sha256: Mapped[str] = mapped_column(String(64))
    attempt: Mapped[int]
    why: Mapped[str]
    speculative: Mapped[bool] = mapped_column(default=False)
    #: Its position in the latest plan, best first.
    rank: Mapped[int] = mapped_column(default=0)
    #: One more than the highest answered round when it was planned.
    round: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default=ProbeState.QUEUED)
    worker: Mapped[str] = mapped_column(String(128), default="")
    #: The canonical structure, once a worker has cut it.
    key: Mapped[str | None] = mapped_column(String(64))
    #: The duplicate in flight, a running probe of the same key: this one is not claimed while that one runs.
    duplicate_id: Mapped[str | None] = mapped_column("waits_for", String(36))
    #: The answer: the verdict as JSON, the bytes compiled, whether it was cached, and the compiler's log.
    verdict: Mapped[dict[str, Any] | None]
    file_sha256: Mapped[str] = mapped_column(String(64), default="")
    cached: Mapped[bool] = mapped_column(default=False)
    engine_seconds: Mapped[float] = mapped_column(default=0.0)
    #: Not read with the row: it can be 64 kB, and a coordinator reads all rows.
    log: Mapped[str] = mapped_column(default="", deferred=True, deferred_raiseload=True)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class KeptVerdict(Base):
    """The verdict base: compilers' answers, for every later job of the tenant."""

    __tablename__ = "kept_verdict"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    identity: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    verdict: Mapped[dict[str, Any]]
    file_sha256: Mapped[str] = mapped_column(String(64), default="")
    log: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime]


class Measurement(Base):
    """A value of the metric, measured for a target of a job with the nodes `keep` in high precision.

    `question` is equal where all values are comparable: the same model, samples, compiler and metric. A retry of the
    job, and the tenant's later jobs with this question, take their answers from here.
    """

    __tablename__ = "measurement"
    __table_args__ = (Index("ix_measurement_question", "question"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    #: The target's ordinal.
    target: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    #: 1, 2, … for each target.
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    question: Mapped[str] = mapped_column(String(64))
    arithmetic: Mapped[str] = mapped_column(String(160))
    keep: Mapped[list[Any]]
    #: The share of the model's work that these nodes do.
    work: Mapped[float]
    #: None where the numbers were not finite.
    value: Mapped[float | None]
    shown: Mapped[str] = mapped_column(String(80))
    why: Mapped[str] = mapped_column(String(80))
    created_at: Mapped[datetime]


class Event(Base):
    """An event of a job, for the page and `/events`. Numbers are 1, 2, … in the order of commits."""

    __tablename__ = "event"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(String(64))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
