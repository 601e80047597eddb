"""A browser that has logged in holds the id of a session, no longer the token: logging out ends it here, too.

API processes of the version before do not know these sessions; whoever has logged in logs in once more.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0007 to 0008."""
    op.create_table(
        "browser_session",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["token.id"], name=op.f("fk_browser_session_token_id_token"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_browser_session")),
    )
