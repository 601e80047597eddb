"""All tables, as they are in the first release.

Revisions before it were never released. It has the number of the last of them, so databases that had that stay.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From nothing to 0014."""
    op.create_table(
        "culprit",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("identity", sa.String(length=80), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("ops", sa.JSON(), nullable=False),
        sa.Column("failure", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fixed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_culprit")),
        sa.UniqueConstraint("tenant", "identity", name=op.f("uq_culprit_tenant_identity")),
    )
    op.create_index("ix_culprit_tenant_id", "culprit", ["tenant", "id"])
    op.create_table(
        "kept_verdict",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.JSON(), nullable=False),
        sa.Column("file_sha256", sa.String(length=64), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "identity", "key", "attempt", name=op.f("pk_kept_verdict")),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lease")),
    )
    op.create_table(
        "model",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("onnx", sa.String(length=64), nullable=True),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "sha256", name=op.f("pk_model")),
    )
    op.create_table(
        "queue",
        sa.Column("backend", sa.String(length=128), nullable=False),
        sa.Column("at_most", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("backend", name=op.f("pk_queue")),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
    )
    op.create_table(
        "unneeded_file",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_unneeded_file")),
    )
    op.create_table(
        "upload",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "sha256", name=op.f("pk_upload")),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("backends", sa.JSON(), nullable=False),
        sa.Column("tools", sa.JSON(), nullable=False),
        sa.Column("unusable", sa.JSON(), nullable=False),
        sa.Column("isolation", sa.JSON(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    op.create_table(
        "browser_session",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["token.id"], name=op.f("fk_browser_session_token_id_token"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_browser_session")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("model_sha256", sa.String(length=64), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("culprit_id", sa.String(length=36), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("idempotency_sha256", sa.String(length=64), nullable=True),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.Column("served_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant", "model_sha256"], ["model.tenant", "model.sha256"], name=op.f("fk_job_tenant_model_sha256_model")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("tenant", "idempotency_key", name=op.f("uq_job_tenant_idempotency_key")),
    )
    op.create_index("ix_job_culprit_id", "job", ["culprit_id"])
    op.create_index("ix_job_state_ended_at", "job", ["state", "ended_at"])
    op.create_index("ix_job_tenant_id", "job", ["tenant", "id"])
    op.create_index("ix_job_tenant_model_sha256_id", "job", ["tenant", "model_sha256", "id"])
    op.create_table(
        "culprit_verdict",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("culprit_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=True),
        sa.Column("found", sa.Boolean(), nullable=False),
        sa.Column("backend", sa.String(length=128), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("model_sha256", sa.String(length=64), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["culprit_id"], ["culprit.id"], name=op.f("fk_culprit_verdict_culprit_id_culprit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["job.id"], name=op.f("fk_culprit_verdict_job_id_job"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_culprit_verdict")),
    )
    op.create_index("ix_culprit_verdict_backend_tool", "culprit_verdict", ["backend", "tool"])
    op.create_index(
        "ix_culprit_verdict_culprit_id_backend_version", "culprit_verdict", ["culprit_id", "backend", "version"]
    )
    op.create_index("ix_culprit_verdict_job_id", "culprit_verdict", ["job_id"])
    op.create_table(
        "endpoint",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secrets", sa.JSON(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disabled_because", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_endpoint_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint")),
    )
    op.create_index("ix_endpoint_tenant_job_id", "endpoint", ["tenant", "job_id"])
    op.create_table(
        "event",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_event_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_event")),
    )
    op.create_table(
        "label",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_label_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_label")),
    )
    op.create_index("ix_label_tenant_name_value_job_id", "label", ["tenant", "name", "value", "job_id"])
    op.create_table(
        "search",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("asked_for", sa.String(length=36), nullable=True),
        sa.Column("question", sa.String(length=80), nullable=True),
        sa.Column("onnx", sa.String(length=64), nullable=True),
        sa.Column("data", sa.JSON(), nullable=True),
        sa.Column("request", sa.JSON(), nullable=True),
        sa.Column("backend", sa.String(length=128), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("fault", sa.String(length=16), nullable=True),
        sa.Column("identity", sa.String(length=64), nullable=True),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("universe", sa.String(length=64), nullable=True),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("graph", sa.String(length=64), nullable=True),
        sa.Column("report", sa.String(length=64), nullable=True),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("compiles_after", sa.JSON(), nullable=True),
        sa.Column("repair", sa.JSON(), nullable=True),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("expected", sa.Double(), nullable=False),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trouble", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_search_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search")),
        sa.UniqueConstraint("job_id", "ordinal", name=op.f("uq_search_job_id_ordinal")),
    )
    op.create_index("ix_search_asked_for", "search", ["asked_for"])
    op.create_index("ix_search_claimed_at", "search", ["claimed_at"])
    op.create_index("ix_search_stage_backend", "search", ["stage", "backend"])
    op.create_index("ix_search_universe_identity", "search", ["universe", "identity"])
    op.create_table(
        "delivery",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("endpoint_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=True),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.JSON(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name=op.f("fk_delivery_endpoint_id_endpoint"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_delivery_job_id_job"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
    )
    op.create_index("ix_delivery_endpoint_id_id", "delivery", ["endpoint_id", "id"])
    op.create_index("ix_delivery_job_id", "delivery", ["job_id"])
    op.create_index("ix_delivery_state_due_at", "delivery", ["state", "due_at"])
    op.create_table(
        "probe",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("search_id", sa.String(length=36), nullable=False),
        sa.Column("units", sa.Text(), nullable=False),
        sa.Column("units_sha256", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("speculative", sa.Boolean(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=True),
        sa.Column("waits_for", sa.String(length=36), nullable=True),
        sa.Column("verdict", sa.JSON(), nullable=True),
        sa.Column("file_sha256", sa.String(length=64), nullable=False),
        sa.Column("cached", sa.Boolean(), nullable=False),
        sa.Column("engine_seconds", sa.Double(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trouble", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["search_id"], ["search.id"], name=op.f("fk_probe_search_id_search"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe")),
        sa.UniqueConstraint(
            "search_id", "units_sha256", "attempt", name=op.f("uq_probe_search_id_units_sha256_attempt")
        ),
    )
    op.create_index("ix_probe_key", "probe", ["key"])
    op.create_index("ix_probe_search_id_state_speculative_rank", "probe", ["search_id", "state", "speculative", "rank"])
    op.create_index("ix_probe_state_lease_until", "probe", ["state", "lease_until"])
