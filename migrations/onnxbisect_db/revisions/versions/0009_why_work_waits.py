"""Lost work says until when nobody takes it again, and why; crashes of a model's own process are counted apart.

What was counted as `losses` until now goes on as the number of losses that say nothing about the model. Processes of
the version before go on while this runs: they take what waits a little too soon, and count losses as they did.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0008 to 0009."""
    for table in ("probe", "search"):
        op.add_column(table, sa.Column("crashes", sa.Integer(), nullable=False, server_default="0"))
        op.add_column(table, sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True))
        op.add_column(table, sa.Column("trouble", sa.Text(), nullable=False, server_default=""))
