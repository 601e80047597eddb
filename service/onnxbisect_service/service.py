"""The resources of every process of the service: settings, database, files, and disk space in reserve."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from onnxbisect.errors import OptionError, shortage
from onnxbisect_db.database import Database
from onnxbisect_db.files import Files, FileStore
from onnxbisect_db.s3_files import S3Files
from onnxbisect_service.settings import Settings

#: Of the reserve, and that SQLite needs to open; and the name of its file.
_BYTES = 16 << 20
_TO_START = 1 << 20
_NAME = "reserve"

T = TypeVar("T")


class Reserve:
    """Disk space that is released so that something can be deleted when the disk is full.

    SQLite writes to its log before it deletes. A file beside the database reserves a few megabytes; it is removed when
    such a write fails for lack of space, and created again once there is enough. There is none for a database that is
    no local file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = None if database.file is None else Path(database.file).with_name(_NAME)

    def run(self, work: Callable[[Session], T]) -> T:
        """`Database.run` for transactions that free space or end work, also on a full disk."""
        try:
            return self._database.run(work)
        except OperationalError as error:
            if shortage(error) is None or self._path is None or not self._path.exists():
                raise
        self._path.unlink(missing_ok=True)
        return self._database.run(work)

    def spend_to_start(self) -> None:
        """Release it if the disk is full: SQLite needs some space even to open."""
        if self._path is not None and shutil.disk_usage(self._path.parent).free < _TO_START:
            self._path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Create it, if there is none and there is space for twice its size."""
        if self._path is None or self._path.exists():
            return
        if shutil.disk_usage(self._path.parent).free < 2 * _BYTES:
            return
        try:
            with self._path.open("xb") as file:
                os.posix_fallocate(file.fileno(), 0, _BYTES)
        except FileExistsError:  # another process creates it
            return
        except OSError:  # the space was used meanwhile
            self._path.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class Service:
    """The resources of one process. Threads may share them; connections do not survive a fork, so processes may not."""

    settings: Settings
    database: Database
    files: FileStore

    @cached_property
    def reserve(self) -> Reserve:
        """Reserved disk space, released for operations that must succeed on a full disk, such as deleting jobs."""
        return Reserve(self.database)

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def open_service(settings: Settings) -> Service:
    """Create folders and connect; does not touch tables. With redis, transactions notify workers everywhere.

    OptionError if the database's URL is wrong or the data folder cannot be written.
    """
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)  # other users must not read models and secrets
        with tempfile.TemporaryFile(dir=settings.data):
            pass
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # on a full disk, users can still read and delete
            raise OptionError(
                f"The data folder {settings.data} cannot be written ({error.strerror}): name another with --data or "
                f"ONNXBISECT_DATA, or let this user write there."
            ) from error
    database = Database(settings.database)
    Reserve(database).spend_to_start()
    if settings.redis_url is not None:
        from onnxbisect_service.notifying import CeleryNotifier, make_app  # celery is slow to import

        database.listen(CeleryNotifier(make_app(settings)))
    return Service(settings=settings, database=database, files=open_files(settings))


def open_files(settings: Settings) -> FileStore:
    """The file store of this installation."""
    if settings.files is None:
        return Files(settings.files_folder, floor=settings.disk_floor)
    return S3Files(settings.files, settings.cache / "s3", floor=settings.disk_floor, cache=settings.model_cache)
