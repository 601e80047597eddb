"""Models, and the jobs that diagnose them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from onnxbisect_db.columns import new_id
from onnxbisect_db.states import JobState, ProbeState, Stage
from onnxbisect_db.tables.base import Base, Leased, Troubled


class Model(Base):
    """An uploaded model that a tenant may use: one file, or one file and those that its external data is in.

    `sha256` is of all its bytes: of the ONNX file, and then of its data, by location. Each is a content-addressed file
    of its own: `files` maps the locations to theirs. `size` is of all of them together.
    """

    __tablename__ = "model"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    #: SHA-256 of the ONNX file, where that is not all of the model.
    onnx: Mapped[str | None] = mapped_column(String(64))
    files: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[datetime]
    #: When it was last uploaded or named by a job: what retention counts from.
    used_at: Mapped[datetime]

    @property
    def onnx_file(self) -> str:
        """The SHA-256 under which the ONNX file is stored."""
        return self.onnx or self.sha256

    @property
    def all_files(self) -> set[str]:
        """The SHA-256 of every stored file of it."""
        return {self.onnx_file, *self.files.values()}


class Upload(Base):
    """An uploaded file that a tenant's jobs may speak of, such as a sample to calibrate with."""

    __tablename__ = "upload"

    tenant: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    #: When it was last uploaded or named by a job: what retention counts from.
    used_at: Mapped[datetime]


class UnneededFile(Base):
    """A stored file that somebody has deleted with the last thing that spoke of it, until it is gone: who has just
    stored the same bytes may not have said yet what for.
    """

    __tablename__ = "unneeded_file"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    since: Mapped[datetime]


class Job(Base):
    """One model on one or more targets. `verdict` is pass, fail or unresolved once it is done.

    A transaction that changes anything of a job, its searches and probes included, locks this row first:
    transactions of one job run one after the other.
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
    #: What was asked for besides targets: input_shapes, budget, calibration, seconds for a compile, recheck.
    request: Mapped[dict[str, Any]]
    #: SHA-256 of the content-addressed files that `request` speaks of.
    files: Mapped[list[Any]] = mapped_column(default=list)
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    priority: Mapped[int] = mapped_column(default=0)
    #: Of a job that no client has asked for: the culprit whose own file it compiles, on a version that has not yet said
    #: anything of it. Lists leave it out, and webhooks hear only of what becomes of the culprit.
    culprit_id: Mapped[str | None] = mapped_column(String(36))
    state: Mapped[str] = mapped_column(String(16), default=JobState.QUEUED)
    verdict: Mapped[str | None] = mapped_column(String(16))
    #: Why it failed, as a sentence.
    problem: Mapped[str] = mapped_column(default="")
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    #: SHA-256 of the request that came with the key: another request under it is a mistake.
    idempotency_sha256: Mapped[str | None] = mapped_column(String(64))
    #: How many events it has.
    events: Mapped[int] = mapped_column(default=0)
    #: When a worker last took a probe of it: of jobs that are equal otherwise, the one that has waited longest is next.
    served_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    #: Its targets: not the searches that their repairs ask for.
    searches: Mapped[list["Search"]] = relationship(
        primaryjoin="and_(Job.id == Search.job_id, Search.asked_for.is_(None))",
        back_populates="job",
        order_by="Search.ordinal",
        lazy="raise",
        passive_deletes="all",
    )


class Label(Base):
    """A label of a job, as in `Job.labels`, where jobs are found by it."""

    __tablename__ = "label"
    __table_args__ = (Index("ix_label_tenant_name_value_job_id", "tenant", "name", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64))
    value: Mapped[str] = mapped_column(String(255))


class Search(Leased, Troubled, Base):
    """One target of a job: what the coordinator works on. Or a changed model that such a target asks about: then
    `asked_for` is the target's search, `onnx` and `data` are the model's files, `request` what is asked of it, and
    `question` what the target calls it.

    `identity` names compiler, version, options and probe format, and is what verdicts are kept under; `universe`,
    `graph`, `report` and the values of `files` are SHA-256 of content-addressed files. A worker holds the search
    while `lease_until` lies ahead; every claim has the next `epoch`, so that what an earlier holder writes changes
    nothing.
    """

    __tablename__ = "search"
    __table_args__ = (
        UniqueConstraint("job_id", "ordinal"),
        Index("ix_search_stage_backend", "stage", "backend"),
        Index("ix_search_universe_identity", "universe", "identity"),
        Index("ix_search_claimed_at", "claimed_at"),
        Index("ix_search_asked_for", "asked_for"),
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
    #: Whose it is that it failed; None where it did not.
    fault: Mapped[str | None] = mapped_column(String(16))
    identity: Mapped[str | None] = mapped_column(String(64))
    tool: Mapped[str] = mapped_column(default="")
    version: Mapped[str] = mapped_column(default="")
    universe: Mapped[str | None] = mapped_column(String(64))
    #: How many units the universe has.
    units: Mapped[int] = mapped_column(default=0)
    #: What pictures of the model are made from; None where none could be made.
    graph: Mapped[str | None] = mapped_column(String(64))
    report: Mapped[str | None] = mapped_column(String(64))
    #: What goes with the report, by path in it: the culprits' models, and what a repair has written.
    files: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The change of the whole file after which it compiles (`CompilesAfter`), {} where none helps or none is to be
    #: tried; None before that is known.
    compiles_after: Mapped[dict[str, Any] | None]
    #: What its repair came to, in a few words; None where there is none, or none yet.
    repair: Mapped[dict[str, Any] | None]
    #: Compiler calls done, the highest round of these, and how many calls are probably left.
    calls: Mapped[int] = mapped_column(default=0)
    round: Mapped[int] = mapped_column(default=0)
    expected: Mapped[float] = mapped_column(default=0.0)
    #: The culprits that stand: a few words on each, by a name of its own.
    found: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The worker that has it, or had it last.
    worker: Mapped[str | None] = mapped_column(String(128))
    #: When it was last claimed: the one that was served longest ago is next.
    claimed_at: Mapped[datetime | None]
    #: Something has changed since it was last claimed.
    dirty: Mapped[bool] = mapped_column(default=True)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    job: Mapped[Job] = relationship(back_populates="searches", lazy="raise")


class Probe(Leased, Troubled, Base):
    """One question of a search: compile these units, for the nth time.

    `units` is the unit set in hexadecimal. A worker claims it with a lease and the next `epoch`, renews the
    lease, and only the latest epoch may answer.
    """

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
    #: Its place in the latest plan, best first.
    rank: Mapped[int] = mapped_column(default=0)
    #: One more than the highest round that was answered when it was asked.
    round: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default=ProbeState.QUEUED)
    worker: Mapped[str] = mapped_column(String(128), default="")
    #: The canonical structure, once a worker has cut it.
    key: Mapped[str | None] = mapped_column(String(64))
    #: A running probe of the same key: no worker claims this one while that one runs.
    waits_for: Mapped[str | None] = mapped_column(String(36))
    #: The answer: a verdict as JSON, the bytes compiled, whether it was known already, and the compiler's log.
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
    """What happened to a job: the page and `/events` read it. Numbers are 1, 2, … in the order of commits."""

    __tablename__ = "event"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(String(64))
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
