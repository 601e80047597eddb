"""Makes the tables, says whether they are those of this version, and copies an SQLite database that is in use."""

import os
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from onnxbisect_db.errors import SchemaError

if TYPE_CHECKING:
    from alembic.config import Config


_REVISIONS = Path(__file__).parent / "revisions"
#: An arbitrary number for the advisory lock, unlikely to be used by other programs in the database.
_LOCK = 0x0B15EC7
#: Seconds that an upgrade of an SQLite file waits for a concurrent one.
_PATIENCE = 600


@cache
def head() -> str:
    """This program's version: the number of the latest revision file."""
    return max(path.name.partition("_")[0] for path in (_REVISIONS / "versions").glob("[0-9]*.py"))


def revision(connection: Connection) -> str | None:
    """The version of the database; None if it has no tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalars(text("SELECT version_num FROM alembic_version")).one_or_none()


def demand_current(session: Session) -> None:
    """SchemaError if the tables have not this program's version."""
    if revision(session.connection()) != head():
        raise SchemaError(
            "The database's tables are not those of this version: a newer one has upgraded them, or `onnx-bisect "
            "migrate` is to be run. Try again when the service is upgraded."
        )


def upgrade(engine: Engine, to: str = "head") -> None:
    """Upgrade in one transaction; a concurrent call waits and finds it done."""
    with engine.connect() as connection:
        if to == "head" and revision(connection) == head():
            return
    from alembic import command
    from alembic.script import ScriptDirectory

    waiting = {"timeout": _PATIENCE} if engine.dialect.name == "sqlite" else {}
    migrating = create_engine(engine.url, poolclass=NullPool, connect_args=waiting)
    with migrating.connect() as connection, connection.begin():
        if connection.dialect.name == "sqlite":
            # Rebuilding a table drops the old one, which would delete dependent rows if foreign keys were enforced.
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = revision(connection)
        known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
        if found is not None and found not in known:
            raise SchemaError(
                f"The database is of another version of onnx-bisect (its tables are at {found}, the newest known here "
                f"is {head()}): use that version, restore a backup, or begin with an empty database."
            )
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)
        if connection.dialect.name == "sqlite":
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                tables = ", ".join(sorted({row[0] for row in broken}))
                raise SchemaError(
                    f"The upgrade was undone: rows of {tables} would belong to nothing. Please report this."
                )


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_REVISIONS).replace("%", "%%"))
    return config


def copy_sqlite(source: Path, to: Path) -> None:
    """Copy one consistent state of `source` while others read and write it.

    After an error, `to` is as it was before. Only this user can read it, because it contains secrets.
    """
    unfinished = to.with_name(f"{to.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(source)) as reading, closing(sqlite3.connect(unfinished)) as writing:
            reading.backup(writing)  # all pages in one transaction, while writers append to the log
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(to)
    finally:
        unfinished.unlink(missing_ok=True)
