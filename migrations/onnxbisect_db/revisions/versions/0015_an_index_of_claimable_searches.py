"""An index of the searches that a worker may claim or holds.

Workers of the version before go on while this runs and after it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0014 to 0015."""
    claimable = sa.text("dirty OR lease_until IS NOT NULL")
    op.create_index(
        "ix_search_lease_until", "search", ["lease_until"], postgresql_where=claimable, sqlite_where=claimable
    )
