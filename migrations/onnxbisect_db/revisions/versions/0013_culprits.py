"""Culprits are remembered over all jobs of a tenant, and asked again of new versions of compilers.

Workers of the version before go on while this runs and after it; what they report is not remembered.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0012 to 0013."""
    op.add_column("job", sa.Column("culprit_id", sa.String(length=36), nullable=True))
    op.create_index("ix_job_culprit_id", "job", ["culprit_id"])
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
    op.create_index(
        "ix_culprit_verdict_culprit_id_backend_version", "culprit_verdict", ["culprit_id", "backend", "version"]
    )
    op.create_index("ix_culprit_verdict_backend_tool", "culprit_verdict", ["backend", "tool"])
    op.create_index("ix_culprit_verdict_job_id", "culprit_verdict", ["job_id"])
