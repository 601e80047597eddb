"""${message}

Workers of the version before go on while this runs and after it: add what they do not know with a default, and remove
nothing that they still use. There is no downgrade; what went wrong is undone by a backup.
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """From ${down_revision} to ${up_revision}."""
    ${upgrades if upgrades else "pass"}
