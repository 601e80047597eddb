"""Disk space that is released so that something can be deleted when the disk is full.

SQLite writes to its log before it deletes. A file beside the database reserves a few megabytes; it is removed when such
a write fails for lack of space, and created again once there is enough.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from onnxbisect.errors import shortage
from onnxbisect_db.database import Database

_BYTES = 16 << 20
_TO_START = 1 << 20
_NAME = "reserve"

T = TypeVar("T")


class Reserve:
    """The reserve of a database; none for a database that is no local file."""

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
