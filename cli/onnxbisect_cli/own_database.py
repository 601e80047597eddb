"""A service's own database: opens it, backs it up and restores it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from onnxbisect.errors import OptionError
from onnxbisect.report.files import put
from onnxbisect.report.text import clean, plural
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


_NAME = "onnx-bisect.sqlite"


def back_up(data: Path | None, to: Path) -> None:
    """Copy the database first, then the files that it names; later uploads are in the next backup.

    Files are named by their content, so those of an earlier backup in the same folder stay as they are.
    """
    settings = load_settings(data=data)
    if settings.files is not None:
        raise OptionError(
            f"The files are in {settings.files}: back the bucket up with its own means, and the database before it."
        )
    if not settings.database.startswith("sqlite"):
        raise OptionError(
            f"The database is PostgreSQL: back it up with 'pg_dump --format=custom', then copy {settings.files_folder}."
        )
    source = Path(settings.database.partition("///")[2])
    if not source.is_file():
        raise OptionError(f"There is no database {source}: give the --data that 'onnx-bisect serve' has.")
    if to.resolve() in (settings.data.resolve(), source.resolve().parent):
        raise OptionError(f"{to} is the folder of the service itself: name another one, best on another disk.")
    with closing(Database(settings.database)) as database:
        version = revision_of(database)
    if version is None:
        raise OptionError(f"{source} has no tables: give the --data that 'onnx-bisect serve' has.")
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy_sqlite(source, to / _NAME)
    files = sorted(settings.files_folder.glob("??/*"))
    new = sum(_copied(path, to / "files" / path.relative_to(settings.files_folder)) for path in files)
    print(clean(f"{to} has the database (version {version}) and {plural(len(files), 'file')}, {new} of them new."))


def _copied(path: Path, to: Path) -> bool:
    """Whether the file was copied; False if it already exists there, or was deleted since it was listed."""
    if to.exists():
        return False
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        put(to, path)
    except FileNotFoundError:
        return False
    return True
