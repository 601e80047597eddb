"""A copy of an SQLite database that is in use."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def copy_sqlite(source: Path, to: Path) -> None:
    """One consistent state of `source`, while others read and write it. `to` is there whole or, as before, not at all;
    it is this user's alone, since secrets are in it.
    """
    unfinished = to.with_name(f"{to.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(source)) as reading, closing(sqlite3.connect(unfinished)) as writing:
            reading.backup(writing)  # all pages in one transaction: writers go on in the log
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(to)
    finally:
        unfinished.unlink(missing_ok=True)
