"""A search tells which worker has it and since when, so that tenants share the hands of each worker.

Workers of the version before go on while this runs and after it: what they have in hand counts as nobody's.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0009 to 0010."""
    op.add_column("search", sa.Column("worker", sa.String(length=128), nullable=True))
    op.add_column("search", sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_search_claimed_at"), "search", ["claimed_at"])
