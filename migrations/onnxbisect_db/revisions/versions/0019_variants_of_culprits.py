"""What tells a culprit from other variants of its op.

Workers of the version before go on while this runs and after it; what they record has no variant.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0018 to 0019."""
    op.add_column("culprit", sa.Column("variant", sa.Text(), nullable=False, server_default=""))
