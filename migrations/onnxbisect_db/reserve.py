"""Room on the disk that is given up so that something can be deleted when the disk is full.

SQLite writes before it deletes: what changes goes to its log first. So a few megabytes are held by a file beside the
database, which is removed where such a write finds no room, and made again once there is enough.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from onnxbisect.shortage import shortage
from onnxbisect_db.database import Database

_BYTES = 16 << 20
_TO_START = 1 << 20
_NAME = "reserve"

T = TypeVar("T")


class Reserve:
    """That of a database: of one that is no file here, there is none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = None if database.file is None else Path(database.file).with_name(_NAME)

    def run(self, work: Callable[[Session], T]) -> T:
        """`Database.run` for what makes room, or ends what takes it: on a full disk, too."""
        try:
            return self._database.run(work)
        except OperationalError as error:
            if shortage(error) is None or self._path is None or not self._path.exists():
                raise
        self._path.unlink(missing_ok=True)
        return self._database.run(work)

    def spend_to_start(self) -> None:
        """Give it up where the disk is full: SQLite needs some room to begin, even if nothing is written then."""
        if self._path is not None and shutil.disk_usage(self._path.parent).free < _TO_START:
            self._path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Make it, where there is none and there is room for it and as much again."""
        if self._path is None or self._path.exists():
            return
        if shutil.disk_usage(self._path.parent).free < 2 * _BYTES:
            return
        try:
            with self._path.open("xb") as file:
                os.posix_fallocate(file.fileno(), 0, _BYTES)
        except FileExistsError:  # another process makes it
            return
        except OSError:  # somebody else has taken the room
            self._path.unlink(missing_ok=True)
