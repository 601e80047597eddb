"""A search remembers whether it failed for what was asked of it, or for want of an answer.

Workers of the version before go on while this runs and after it: a search that they end has no fault.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0002 to 0003."""
    op.add_column("search", sa.Column("fault", sa.String(length=16), nullable=True))
