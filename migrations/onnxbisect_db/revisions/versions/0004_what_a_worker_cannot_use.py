"""A worker tells which of its backends it cannot use, beside the sentences why.

Workers of the version before go on while this runs and after it: they do not tell.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0003 to 0004."""
    op.add_column("worker", sa.Column("unusable", sa.JSON(), nullable=True))
