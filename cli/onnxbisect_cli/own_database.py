"""The service's database for the operator's commands, which read the settings and need no token."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from onnxbisect.errors import OptionError
from onnxbisect.report.text import clean
from onnxbisect_db import schema
from onnxbisect_db.database import Database
from onnxbisect_db.errors import SchemaError
from onnxbisect_db.schema import copy_sqlite
from onnxbisect_service.settings import load_settings


@contextmanager
def own_database(data: Path | None) -> Iterator[Database]:
    """The database of the settings, with `data` as their folder; SchemaError if its tables have another version."""
    with closing(Database(load_settings(data=data).database)) as database:
        if not is_current(database):
            raise SchemaError(
                "The database has no tables of this version: give the --data that 'onnx-bisect serve' has, or run "
                "'onnx-bisect migrate' first."
            )
        yield database


def migrate(data: Path | None) -> None:
    """Upgrade the tables to this version, and print it."""
    with closing(Database(load_settings(data=data).database)) as database:
        if not is_current(database):
            upgrade(database)
        print(f"The database is at version {database.revision()}.")


def upgrade(database: Database) -> None:
    """Upgrade the tables to this version. An SQLite file with tables is copied first."""
    found = revision_of(database)
    if database.file is not None and found is not None and found < schema.head():
        source = Path(database.file)
        backup = source.with_name(f"{source.stem}-{found}{source.suffix}")
        copy_sqlite(source, backup)
        print(clean(f"The database is migrated from version {found}; a copy of it as it was is {backup}"), flush=True)
    database.upgrade()


def is_current(database: Database) -> bool:
    """Whether the tables have this program's version; OptionError if the database cannot be reached."""
    return revision_of(database) == schema.head()


def revision_of(database: Database) -> str | None:
    """The version of the tables, None if there are none; OptionError if the database cannot be reached."""
    try:
        return database.revision()
    except SQLAlchemyError as error:  # its text may contain the password
        if database.file is not None:
            raise OptionError(
                f"The database {database.file} cannot be read ({type(error).__name__}): is it onnx-bisect's, and are "
                f"you the user that 'onnx-bisect serve' runs as?"
            ) from None
        raise OptionError(
            f"The database cannot be reached ({type(error).__name__}): is ONNXBISECT_DATABASE_URL right?"
        ) from None
