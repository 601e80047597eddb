"""Before its parts are searched, a target may ask about changed copies of the whole file.

Stop workers of the version before: they do not know that stage.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0013 to 0014."""
    op.add_column("search", sa.Column("compiles_after", sa.JSON(), nullable=True))
