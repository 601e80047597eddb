"""The report of a search in short, for the event `job.finished`.

Workers of the version before go on while this runs and after it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0016 to 0017."""
    op.add_column("search", sa.Column("findings", sa.JSON(), nullable=True))
