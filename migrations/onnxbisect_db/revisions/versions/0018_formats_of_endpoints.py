"""The form in which an endpoint of webhooks gets its messages.

Workers of the version before go on while this runs and after it; to an endpoint of a chat they would send signed JSON.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0017 to 0018."""
    op.add_column("endpoint", sa.Column("format", sa.String(length=16), nullable=False, server_default="json"))
