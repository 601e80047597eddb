"""The verdict base: stores compilers' answers, so that no probe is compiled twice.

An answer is stored by target (tool, version, options, probe format), probe key (`onnxbisect.key`: the structure of the
probe, not its names) and attempt: attempt 0 is the first compile of a probe, and each repetition in a fresh process is
the next attempt. Answers of different attempts are never exchanged, so a search that is started again sees the same
sequence of answers, also from a flaky compiler. Unresolved verdicts are not stored, since their cause may be temporary;
an exception are those of a profile without a rule for the probe.

A journal lists the sets of units that one search compiled. With several workers the order of answers influences the
search, so a second run first takes all answers in the journal and needs no compile. Another version of the model has
its own journal and finds the answers for unchanged parts by probe key.
"""

import json
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onnxbisect.answer import Answer, shorten_log
from onnxbisect.json_form import from_json, to_json
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Verdict
from onnxbisect_backends.folders import cache_folder


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One entry of the journal: the search compiled these units, whose probe key is `key`, as this attempt."""

    units: UnitSet
    attempt: int
    key: str
    why: str


class VerdictBase(Protocol):
    """Stores answers. Used by one thread. Methods never raise: a broken cache must not fail a run."""

    @property
    def problem(self) -> str | None:
        """A sentence for the user if answers could not be stored for the next run, else None."""

    def get(self, key: str, attempt: int) -> Answer | None:
        """The answer of that attempt, None if it is not stored."""

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        """Store an answer, replacing that of the same attempt. An answer that is not final is ignored."""

    def journal(self) -> list[JournalEntry]:
        """The probes that earlier runs of this search compiled, in the order of their answers."""

    def note(self, asked: JournalEntry) -> None:
        """Add an entry to the journal, unless it has one with the same units and attempt."""

    def close(self) -> None:
        """Close the file."""


#: Answers of one target by probe key and attempt.
Answers = dict[tuple[str, int], Answer]


class InMemoryVerdictBase:
    """Stores answers in memory: for `--no-cache`, and if the file cannot be written."""

    def __init__(self, problem: str | None = None) -> None:
        self.problem = problem
        self._answers: Answers = {}
        self._journal: dict[tuple[UnitSet, int], JournalEntry] = {}

    def get(self, key: str, attempt: int) -> Answer | None:
        return self._answers.get((key, attempt))

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        if answer.verdict.final:
            self._answers[key, attempt] = answer

    def journal(self) -> list[JournalEntry]:
        return list(self._journal.values())

    def note(self, asked: JournalEntry) -> None:
        self._journal.setdefault((asked.units, asked.attempt), asked)

    def close(self) -> None:
        """Does nothing."""


class SharedVerdictBase:
    """A base, and the answers that other searches of the same run had from the target, time-outs included.

    A search that begins with a question of an earlier one does not wait for it again.
    """

    def __init__(self, base: VerdictBase, answers: Answers) -> None:
        self._base, self._answers = base, answers

    @property
    def problem(self) -> str | None:
        return self._base.problem

    def get(self, key: str, attempt: int) -> Answer | None:
        return self._answers.get((key, attempt)) or self._base.get(key, attempt)

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        if answer.verdict.final or answer.verdict.kind is Kind.TIMEOUT:
            self._answers[key, attempt] = answer
        self._base.put(key, attempt, answer)

    def journal(self) -> list[JournalEntry]:
        return self._base.journal()

    def note(self, asked: JournalEntry) -> None:
        self._base.note(asked)

    def close(self) -> None:
        self._base.close()


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
                return Answer(verdict=from_json(json.loads(verdict), Verdict), file_sha256=file_sha256, log=log)
        return None

    def put(self, key: str, attempt: int, answer: Answer) -> None:
        if not answer.verdict.final:
            return
        verdict, log = json.dumps(to_json(answer.verdict)), shorten_log(answer.log)
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
