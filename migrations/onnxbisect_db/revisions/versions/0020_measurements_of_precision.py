"""Measurements of jobs that ask which nodes must stay precise, and what these came to.

Workers of the version before go on while this runs and after it; they do not claim a search at this stage.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0019 to 0020."""
    op.add_column("search", sa.Column("precision", sa.JSON(), nullable=True))
    op.create_table(
        "measurement",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("target", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question", sa.String(length=64), nullable=False),
        sa.Column("arithmetic", sa.String(length=160), nullable=False),
        sa.Column("keep", sa.JSON(), nullable=False),
        sa.Column("work", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("shown", sa.String(length=80), nullable=False),
        sa.Column("why", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_measurement_job_id_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "target", "number", name=op.f("pk_measurement")),
    )
    op.create_index("ix_measurement_question", "measurement", ["question"], unique=False)
