"""Copies an SQLite database that is in use."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path


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
