"""A search may be followed by a repair, which asks searches of its own about changed models.

Stop workers of the version before: they know no repairs, and what a repair asks about they would take for the model
of the job.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0010 to 0011."""
    op.add_column("search", sa.Column("asked_for", sa.String(length=36), nullable=True))
    op.add_column("search", sa.Column("question", sa.String(length=80), nullable=True))
    op.add_column("search", sa.Column("onnx", sa.String(length=64), nullable=True))
    op.add_column("search", sa.Column("data", sa.JSON(), nullable=True))
    op.add_column("search", sa.Column("request", sa.JSON(), nullable=True))
    op.add_column("search", sa.Column("repair", sa.JSON(), nullable=True))
    op.create_index(op.f("ix_search_asked_for"), "search", ["asked_for"])
