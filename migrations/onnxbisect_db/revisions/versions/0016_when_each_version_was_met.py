"""When each version of a compiler was met first.

Workers of the version before go on while this runs and after it.
"""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_KNOWN = """
SELECT backend, tool, version, min(at) AS first_seen
FROM (
    SELECT backend, tool, version, at FROM culprit_verdict
    UNION ALL SELECT backend, tool, version, started_at FROM search WHERE tool <> '' AND started_at IS NOT NULL
) AS known
GROUP BY backend, tool, version
"""


def upgrade() -> None:
    """From 0015 to 0016."""
    made = op.create_table(
        "compiler_version",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_compiler_version")),
    )
    text = sa.Text()
    known = sa.text(_KNOWN).columns(backend=text, tool=text, version=text, first_seen=sa.DateTime(timezone=True))
    for *version, first_seen in op.get_bind().execute(known).all():
        digest = hashlib.sha256(json.dumps(version).encode()).hexdigest()
        op.execute(made.insert().values(id=digest, first_seen=first_seen))
