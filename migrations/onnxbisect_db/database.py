"""The database: how it is reached, what a transaction is, and what time it is there.

Modules beside this one are functions over a `Session`, which is one transaction; none of them commits. A caller says
where the transaction ends:

    settled = database.run(lambda session: probes.answer(session, claim, answer))

Rows that come back are read-only snapshots: they stay readable after the transaction, and what was not loaded raises
instead of asking the database again.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from onnxbisect.errors import OptionError
from onnxbisect_db import notices, schema
from onnxbisect_db.clock import Clock, ServerClock, own_clock

T = TypeVar("T")

#: Seconds that SQLite waits for another writer.
_PATIENCE = 30
#: Pauses before a transaction that lost against another is tried again.
_PAUSES = (0.01, 0.05, 0.2, 1.0)
_WRITES = "onnxbisect_writes"
_CLOCK = "onnxbisect_clock"


class Database:
    """SQLite in a file, or PostgreSQL. Threads may share it; processes open it each for itself.

    `clock` replaces the database's own clock, for tests. Without `durable` a power cut may take back the last moments
    of an SQLite file; a process that is killed loses nothing either way.
    """

    def __init__(self, url: str, *, clock: Callable[[], datetime] | None = None, durable: bool = True) -> None:
        self._engine = _sqlite(url, durable=durable) if url.startswith("sqlite") else _postgresql(url)
        reading: dict[str, Any] = {_WRITES: False}
        if self._engine.dialect.name == "postgresql":
            reading |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        info = {_CLOCK: self._clock() if clock is None else lambda _session: clock()}
        self._reading = sessionmaker(self._engine.execution_options(**reading), expire_on_commit=False, info=info)
        self._writing = sessionmaker(self._engine, expire_on_commit=False, info=info)
        # SQLite has one writer, and lets others sleep for longer and longer: threads wait for each other here
        self._one_writer: AbstractContextManager[object] = (
            Lock() if self._engine.dialect.name == "sqlite" else nullcontext()
        )
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Tell it from now on, after every commit, what workers should look at (`notices`). It must not raise."""
        self._listeners.append(listener)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """To read: one consistent view, in which nothing can be written."""
        with self._reading() as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """To write: committed at the end, rolled back by an exception."""
        with self._writing() as session:
            with self._one_writer, session.begin():
                yield session
            ready = notices.topics(session)
        if ready:
            for listener in self._listeners:
                listener(ready)

    def run(self, work: Callable[[Session], T]) -> T:
        """`work` in a transaction. Where the database rolled it back because of another one, `work` runs again."""
        for pause in _PAUSES:
            try:
                with self.transaction() as session:
                    return work(session)
            except DBAPIError as error:
                if not _lost_against_another(error):
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - two that met shall not meet again
        with self.transaction() as session:
            return work(session)

    @property
    def file(self) -> str | None:
        """SQLite's."""
        return self._engine.url.database if self._engine.dialect.name == "sqlite" else None

    def upgrade(self) -> None:
        """Bring the tables to this program's version; several processes may do so at a time. There is no way back."""
        schema.upgrade(self._engine)

    def revision(self) -> str | None:
        """The version that the tables have; None where there are none."""
        with self.session() as session:
            return schema.revision(session.connection())

    def is_current(self) -> bool:
        """Whether the tables are those of this program."""
        return self.revision() == schema.head()

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def _clock(self) -> Clock:
        return ServerClock() if self._engine.dialect.name == "postgresql" else own_clock


def now(session: Session) -> datetime:
    """What time it is for all who share the database. Read it once there is a lock to hold."""
    clock: Clock = session.info[_CLOCK]
    return clock(session)


def _sqlite(url: str, *, durable: bool) -> Engine:
    # The driver would begin transactions by itself, and too late; `_begin` does.
    engine = _engine(url, connect_args={"isolation_level": None, "timeout": _PATIENCE})
    path = engine.url.database
    if not path or path == ":memory:":
        raise OptionError("The database must be a file: what SQLite has in memory, only one connection can see.")
    _begin_file(Path(path))
    pragmas = ("foreign_keys = ON", "journal_mode = WAL", f"synchronous = {'FULL' if durable else 'NORMAL'}")

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        for pragma in pragmas:
            _insist(connection, f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and then writes could not go on if another one wrote in between.
        writes = connection.get_execution_options().get(_WRITES, True)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: str) -> Engine:
    engine = _engine(url, pool_pre_ping=True)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        # what a worker asks runs for milliseconds; where much waits, PostgreSQL would compile it for fifty each time
        connection.execute("SET jit = off")
        connection.commit()

    return engine


def _begin_file(path: Path) -> None:
    """A new file, and a new folder, for this user alone: signing secrets are in it. What is there already stays as its
    owner has it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Never opened where it is there: closing it would take away the locks that this process has on it.
    with suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _insist(connection: sqlite3.Connection, statement: str) -> None:
    """Of processes that open a new file at once, SQLite tells all but one that it is busy, whatever its timeout."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


def _is_busy(error: object) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _engine(url: str, **options: Any) -> Engine:
    try:
        return create_engine(url, **options)
    except (ArgumentError, ImportError) as error:
        # The URL may hold a password: it is not repeated.
        raise OptionError(
            "The database must be SQLite or PostgreSQL, as in sqlite:////var/lib/onnx-bisect/db.sqlite or "
            "postgresql://user:password@host/name."
        ) from error


def _lost_against_another(error: DBAPIError) -> bool:
    """Serialisation failure or deadlock in PostgreSQL, SQLITE_BUSY in SQLite: nothing was written."""
    return _is_busy(error.orig) or getattr(error.orig, "sqlstate", None) in ("40001", "40P01")
