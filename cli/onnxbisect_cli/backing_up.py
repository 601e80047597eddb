"""`onnx-bisect backup`: the service's database and files, copied while it runs."""

import shutil
from contextlib import closing
from pathlib import Path

from onnxbisect.errors import OptionError
from onnxbisect.report.text import clean, plural
from onnxbisect_cli.own_database import revision_of
from onnxbisect_db.database import Database
from onnxbisect_db.schema import copy_sqlite
from onnxbisect_service.settings import Settings, load_settings

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
    source = _demand_sqlite(settings)
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


def _demand_sqlite(settings: Settings) -> Path:
    if not settings.database.startswith("sqlite"):
        raise OptionError(
            f"The database is PostgreSQL: back it up with 'pg_dump --format=custom', then copy {settings.files_folder}."
        )
    source = Path(settings.database.partition("///")[2])
    if not source.is_file():
        raise OptionError(f"There is no database {source}: give the --data that 'onnx-bisect serve' has.")
    return source


def _copied(path: Path, to: Path) -> bool:
    """Whether the file was copied; False if it already exists there, or was deleted since it was listed."""
    if to.exists():
        return False
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = to.with_name(f"{to.name}.unfinished")
    try:
        shutil.copyfile(path, unfinished)
    except FileNotFoundError:
        return False
    unfinished.replace(to)
    return True
