"""Run by Alembic: from `onnxbisect_db.schema` with a connection, or by a developer with alembic.ini."""

import os

from alembic import context
from sqlalchemy import Connection, create_engine

from onnxbisect_db.tables import Base


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        # SQLite cannot alter most of a table, so it is rebuilt
        render_as_batch=connection.dialect.name == "sqlite",
        # SQLite's DDL is transactional, which Alembic does not assume
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_given: Connection | None = context.config.attributes.get("connection")
if _given is not None:
    _migrate(_given)
else:
    with create_engine(os.environ["ONNXBISECT_DATABASE_URL"]).connect() as _own, _own.begin():
        _migrate(_own)
