"""Workers look at the database every few seconds: no row says when the queue is to be told of it again.

All rows that one worker at a time works on count their claims alike, in `epoch`. Stop the workers of the version
before: they need the columns that go.
"""

from alembic import op

revision: str = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_RENAMED = (
    ("search", "turn", "epoch"),
    ("search", "stale", "dirty"),
    ("probe", "claims", "epoch"),
    ("delivery", "claims", "epoch"),
)


def upgrade() -> None:
    """From 0011 to 0012."""
    for table in ("search", "queue", "delivery"):
        for column in ("ring_at", "rings"):
            op.drop_column(table, column)
    for table, column, name in _RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {name}")
