"""A model with external data is named by all of its bytes, so that one graph with other weights is another model. And
files that were deleted while they were young are remembered until they are gone.

What was uploaded before keeps its name, which is that of its ONNX file. Stop workers of the version before: they do
not find the ONNX file of a model with external data that is uploaded from now on, and may clear it away.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0006 to 0007."""
    op.create_table(
        "unneeded_file",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_unneeded_file")),
    )
    op.add_column("model", sa.Column("onnx", sa.String(length=64), nullable=True))
