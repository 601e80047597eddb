"""The tables' versions, and the way from one to the next: Alembic, run from the installed package.

There is no way back. A version that does not fit is undone by restoring the backup that was made before.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from onnxbisect_db.errors import SchemaError

if TYPE_CHECKING:  # it takes as long to import as everything else here, and mostly there is nothing to upgrade
    from alembic.config import Config

_REVISIONS = Path(__file__).parent / "revisions"
#: Any number that no other program's advisory lock in the same database is likely to have.
_LOCK = 0x0B15EC7
#: Seconds that an upgrade of an SQLite file waits for another one.
_PATIENCE = 600


@cache
def head() -> str:
    """The version that this program works with: files of revisions are named by number."""
    return max(path.name.partition("_")[0] for path in (_REVISIONS / "versions").glob("[0-9]*.py"))


def revision(connection: Connection) -> str | None:
    """The version that the database has; None where it has no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalars(text("SELECT version_num FROM alembic_version")).one_or_none()


def upgrade(engine: Engine, to: str = "head") -> None:
    """Upgrade in one transaction; a process that calls this at the same time waits and finds it done."""
    with engine.connect() as connection:
        if to == "head" and revision(connection) == head():
            return
    from alembic import command
    from alembic.script import ScriptDirectory

    waiting = {"timeout": _PATIENCE} if engine.dialect.name == "sqlite" else {}
    migrating = create_engine(engine.url, poolclass=NullPool, connect_args=waiting)
    with migrating.connect() as connection, connection.begin():
        _lock(connection)
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
            _demand_whole(connection)


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        # Rebuilding a table drops the old one. Were foreign keys enforced, what belongs to its rows would go, too.
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def _demand_whole(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        tables = ", ".join(sorted({row[0] for row in broken}))
        raise SchemaError(f"The upgrade was undone: rows of {tables} would belong to nothing. Please report this.")


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_REVISIONS).replace("%", "%%"))
    return config
