"""A search remembers the file that pictures of its model are made from.

Workers of the version before go on while this runs and after it: a search that they prepare has no pictures.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0004 to 0005."""
    op.add_column("search", sa.Column("graph", sa.String(length=64), nullable=True))
