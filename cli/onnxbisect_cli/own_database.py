"""The service's database, for the operator's commands, which need no token: they read the settings themselves."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from onnxbisect.errors import OptionError
from onnxbisect_db import schema
from onnxbisect_db.backup import copy_sqlite
from onnxbisect_db.database import Database
from onnxbisect_db.errors import SchemaError
from onnxbisect_service.settings import load_settings


@contextmanager
def own_database(data: Path | None) -> Iterator[Database]:
    """The one that the settings name, with `data` for their folder; SchemaError where it has not this version's
    tables.
    """
    with closing(Database(load_settings(data=data).database)) as database:
        if not is_current(database):
            raise SchemaError(
                "The database has no tables of this version: give the --data that 'onnx-bisect serve' has, or run "
                "'onnx-bisect migrate' first."
            )
        yield database


def migrate(data: Path | None) -> None:
    """Bring its tables to this version, and say which one that is."""
    with closing(Database(load_settings(data=data).database)) as database:
        if not is_current(database):
            upgrade(database)
        print(f"The database is at version {database.revision()}.")


def upgrade(database: Database) -> None:
    """Bring its tables to this version. An SQLite file that has tables is copied beside itself before."""
    found = revision_of(database)
    if database.file is not None and found is not None and found < schema.head():
        source = Path(database.file)
        backup = source.with_name(f"{source.stem}-{found}{source.suffix}")
        copy_sqlite(source, backup)
        print(f"The database is migrated from version {found}; a copy of it as it was is {backup}", flush=True)
    database.upgrade()


def is_current(database: Database) -> bool:
    """Whether the tables are those of this program; OptionError where the database cannot be reached."""
    return revision_of(database) == schema.head()


def revision_of(database: Database) -> str | None:
    """The version that the tables have, None without any; OptionError where the database cannot be reached."""
    try:
        return database.revision()
    except SQLAlchemyError as error:  # whose text may have the password
        if database.file is not None:
            raise OptionError(
                f"The database {database.file} cannot be read ({type(error).__name__}): is it onnx-bisect's, and are "
                f"you the user that 'onnx-bisect serve' runs as?"
            ) from None
        raise OptionError(
            f"The database cannot be reached ({type(error).__name__}): is ONNXBISECT_DATABASE_URL right?"
        ) from None
