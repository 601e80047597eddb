"""A worker tells how far it keeps the compiles of each backend away from the rest of its machine.

Workers of the version before go on while this runs and after it: they do not tell.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0005 to 0006."""
    op.add_column("worker", sa.Column("isolation", sa.JSON(), nullable=True))
