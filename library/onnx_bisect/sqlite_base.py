"""The verdict base as an SQLite file in the user's cache directory, which several runs may have open at once."""

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_bisect.verdict_base import InMemoryVerdictBase, JournalEntry, VerdictBase
from onnxbisect import verdict_json
from onnxbisect.answer import Answer, shorten_log
from onnxbisect_backends.cache import cache_folder

_SCHEMA_VERSION = 1
_SCHEMA = (
    """CREATE TABLE answer (
        target TEXT NOT NULL,
        key TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        verdict TEXT NOT NULL,
        file_sha256 TEXT NOT NULL,
        log TEXT NOT NULL,
        kept_at REAL NOT NULL,
        PRIMARY KEY (target, key, attempt)
    ) WITHOUT ROWID""",
    """CREATE TABLE journal (
        line INTEGER PRIMARY KEY,
        search TEXT NOT NULL,
        units TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        key TEXT NOT NULL,
        why TEXT NOT NULL,
        UNIQUE (search, units, attempt)
    )""",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)


class SqliteVerdictBase:
    """Answers of one target and the journal of one search; every write is committed at once."""

    def __init__(self, connection: sqlite3.Connection, *, target: str, search: str, problem: str | None = None) -> None:
        self.problem = problem
        self._connection = connection
        self._target = target
        self._search = search

    def get(self, key: str, attempt: int) -> Answer | None:
        rows = self._execute(
            "SELECT verdict, file_sha256, log FROM answer WHERE target = ? AND key = ? AND attempt = ?",
            (self._target, key, attempt),
        )
        for verdict, file_sha256, log in rows:
            with suppress(
                ValueError, TypeError, KeyError, AttributeError
            ):  # not written by this program: treat it as missing
                return Answer(verdict=verdict_json.from_json(json.loads(verdict)), file_sha256=file_sha256, log=log)
        return None

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        if not answer.verdict.final:
            return
        verdict, log = json.dumps(verdict_json.to_json(answer.verdict)), shorten_log(answer.log)
        self._execute(
            "INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self._target, key, attempt, verdict, answer.file_sha256, log, time.time()),
        )

    def journal(self) -> list[JournalEntry]:
        rows = self._execute(
            "SELECT units, attempt, key, why FROM journal WHERE search = ? ORDER BY line", (self._search,)
        )
        return [
            JournalEntry(units=int(units, 16), attempt=attempt, key=key, why=why) for units, attempt, key, why in rows
        ]

    def note(self, asked: JournalEntry) -> None:
        self._execute(
            "INSERT OR IGNORE INTO journal (search, units, attempt, key, why) VALUES (?, ?, ?, ?, ?)",
            (self._search, f"{asked.units:x}", asked.attempt, asked.key, asked.why),
        )

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The rows. If the statement fails, sets `problem` and returns no rows."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            self.problem = f"not every verdict is kept for the next run: the verdict base failed ({error})"
            return []


def default_path() -> Path:
    """`verdicts.sqlite` in the cache folder."""
    return cache_folder() / "verdicts.sqlite"


def open_base(path: Path, *, target: str, search: str) -> VerdictBase:
    """Open the verdict base at `path`; create it if it does not exist. Never raises.

    A file that is damaged, or has another schema version, is renamed and replaced by a new one. If the file cannot be
    written, answers are kept in memory. `VerdictBase.problem` describes both cases to the user.
    """
    try:
        return SqliteVerdictBase(_connect(path), target=target, search=search)
    except sqlite3.OperationalError as error:  # locked, read-only, disk full: a new file would not help
        return InMemoryVerdictBase(f"verdicts are not kept: {path} cannot be used ({error})")
    except OSError as error:
        return InMemoryVerdictBase(f"verdicts are not kept: {path} cannot be used ({error.strerror or error})")
    except sqlite3.DatabaseError:
        return _begin_anew(path, target, search)


def _begin_anew(path: Path, target: str, search: str) -> VerdictBase:
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    try:
        path.rename(aside)
        for companion in ("-wal", "-shm"):
            path.with_name(path.name + companion).unlink(missing_ok=True)
        connection = _connect(path)
    except (OSError, sqlite3.Error) as error:
        return InMemoryVerdictBase(f"verdicts are not kept: {path} is damaged and cannot be replaced ({error})")
    problem = f"the verdict base could not be read; it was moved to {aside} and a new one is begun"
    return SqliteVerdictBase(connection, target=target, search=search, problem=problem)


def _connect(path: Path) -> sqlite3.Connection:
    """An open connection with the schema in place.

    Raises sqlite3.DatabaseError for a damaged file and one with other tables, its OperationalError where the file
    cannot be opened or written now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0]
        if version == 0 and tables == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
        elif version != _SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"schema version {version}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection
