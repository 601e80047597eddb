"""The database: connections, transactions, its clock, and statements that all tables share.

The other modules are functions over a `Session`, which is one transaction; none of them commits. The caller determines
where the transaction ends:

    settled = database.run(lambda session: probes.answer(session, claim, answer))

Returned rows are read-only snapshots: they stay readable after the transaction, and access to an unloaded attribute
raises instead of querying the database.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from select import POLLIN, poll
from threading import Lock
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine, Select, create_engine, event, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.orm import Session, sessionmaker
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_random

from onnxbisect.errors import OptionError
from onnxbisect_db import notices, schema
from onnxbisect_db.tables import Base
from onnxbisect_db.tables.base import Moment

#: Seconds between reads of the server's clock.
_GOOD_FOR = 10.0
#: A clock that also counts while the machine sleeps, if the system has one.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Clock = Callable[[Session], datetime]


class ServerClock:
    """PostgreSQL's clock, read every few seconds and extrapolated with this machine's clock.

    Reading it each time would cost every transaction a round trip. Threads may share it; it is late by one trip, and
    never early.
    """

    def __init__(self) -> None:
        self._known: tuple[datetime, float] | None = None

    def __call__(self, session: Session) -> datetime:
        """The current time; `session` reads the clock if needed."""
        known = self._known
        since = 0.0 if known is None else time.clock_gettime(_COUNTER) - known[1]
        if known is not None and since < _GOOD_FOR:
            return known[0] + timedelta(seconds=since)
        # `now()` would be the start of the transaction
        asked = session.scalars(select(func.clock_timestamp(type_=Moment()))).one()
        self._known = asked, time.clock_gettime(_COUNTER)
        return asked


def own_clock(_session: Session) -> datetime:
    """This machine's clock, which all users of an SQLite file share."""
    return datetime.now(UTC)


T = TypeVar("T")

#: Seconds that SQLite waits for another writer.
_PATIENCE = 30
#: Seconds before retries of a transaction that was rolled back because of a conflict, give or take a half.
_PAUSES = (0.01, 0.05, 0.2, 1.0)
_WRITES = "onnxbisect_writes"
_CLOCK = "onnxbisect_clock"


class Database:
    """SQLite in a file, or PostgreSQL. Threads may share it; each process opens its own.

    `clock` replaces the database's clock, for tests. Without `durable`, a power failure may lose the last moments of an
    SQLite file; killing the process loses nothing.
    """

    def __init__(self, url: str, *, clock: Callable[[], datetime] | None = None, durable: bool = True) -> None:
        self._engine = _sqlite(url, durable=durable) if url.startswith("sqlite") else _postgresql(url)
        reading: dict[str, Any] = {_WRITES: False}
        if self._engine.dialect.name == "postgresql":
            reading |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        own: Clock = ServerClock() if self._engine.dialect.name == "postgresql" else own_clock
        info = {_CLOCK: own if clock is None else lambda _session: clock()}
        self._reading = sessionmaker(self._engine.execution_options(**reading), expire_on_commit=False, info=info)
        self._writing = sessionmaker(self._engine, expire_on_commit=False, info=info)
        # SQLite has one writer and makes others sleep with increasing delays, so threads queue here instead
        self._one_writer: AbstractContextManager[object] = (
            Lock() if self._engine.dialect.name == "sqlite" else nullcontext()
        )
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call the listener after every commit with the topics of its notifications (`notices`). It must not raise."""
        self._listeners.append(listener)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A read-only session with one consistent view."""
        with self._reading() as session:
            yield session
            session.commit()  # a rollback would make psycopg forget the connection's prepared statements

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session that commits at the end, and rolls back after an exception."""
        with self._writing() as session:
            with self._one_writer, session.begin():
                yield session
            ready = notices.topics(session)
        if ready:
            for listener in self._listeners:
                listener(ready)

    def run(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction, and again if the database rolled it back because of a conflict."""
        done: T = _retrying(self._once, work)
        return done

    @property
    def file(self) -> str | None:
        """The path of the SQLite file; None for PostgreSQL."""
        return self._engine.url.database if self._engine.dialect.name == "sqlite" else None

    def upgrade(self) -> None:
        """Upgrade the tables to this program's version; safe with concurrent processes. There is no downgrade."""
        schema.upgrade(self._engine)

    def revision(self) -> str | None:
        """The version of the tables; None if there are none."""
        with self.session() as session:
            return schema.revision(session.connection())

    def is_current(self) -> bool:
        """Whether the tables have this program's version."""
        return self.revision() == schema.head()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _once(self, work: Callable[[Session], T]) -> T:
        with self.transaction() as session:
            return work(session)


def now(session: Session) -> datetime:
    """The database's current time. Read it after taking locks."""
    clock: Clock = session.info[_CLOCK]
    return clock(session)


def _sqlite(url: str, *, durable: bool) -> Engine:
    # The driver would begin transactions implicitly, and too late; `_begin` begins them.
    engine = _engine(url, connect_args={"isolation_level": None, "timeout": _PATIENCE})
    path = engine.url.database
    if not path or path == ":memory:":
        raise OptionError("The database must be a file: what SQLite has in memory, only one connection can see.")
    # For this user only, because it holds signing secrets; an existing file and folder keep their permissions.
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # An existing file is not opened: closing it would release this process's locks on it.
    with suppress(OSError):  # SQLite reports the error
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    pragmas = ("foreign_keys = ON", "journal_mode = WAL", f"synchronous = {'FULL' if durable else 'NORMAL'}")

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        for pragma in pragmas:
            _insist(connection, f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads and then writes would fail if another one wrote in between.
        writes = connection.get_execution_options().get(_WRITES, True)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: str) -> Engine:
    engine = _engine(url, pool_use_lifo=True)  # few connections, each with its prepared statements

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        # workers' queries run for milliseconds; on long queues, PostgreSQL would JIT-compile each for fifty
        connection.execute("SET jit = off")
        connection.commit()

    @event.listens_for(engine, "checkout")
    def _checkout(connection: Any, record: Any, proxy: Any) -> None:
        # A server sends nothing on an idle connection but its end. `pool_pre_ping` would cost each transaction a query.
        arrived = poll()
        arrived.register(connection.fileno(), POLLIN)
        if arrived.poll(0):
            raise DisconnectionError

    return engine


def _insist(connection: sqlite3.Connection, statement: str) -> None:
    """Run the statement with retries: when processes open a new file, SQLite reports busy despite its timeout."""
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
        # The URL is not repeated, because it may contain a password.
        raise OptionError(
            "The database must be SQLite or PostgreSQL, as in sqlite:////var/lib/onnx-bisect/db.sqlite or "
            "postgresql://user:password@host/name."
        ) from error


def _lost_against_another(error: BaseException) -> bool:
    """Whether nothing was written: serialisation failure or deadlock in PostgreSQL, SQLITE_BUSY in SQLite."""
    if not isinstance(error, DBAPIError):
        return False
    return _is_busy(error.orig) or getattr(error.orig, "sqlstate", None) in ("40001", "40P01")


_retrying = Retrying(
    retry=retry_if_exception(_lost_against_another),
    wait=wait_chain(*(wait_random(pause / 2, pause * 1.5) for pause in _PAUSES)),
    stop=stop_after_attempt(len(_PAUSES) + 1),
    reraise=True,
)


def insert(session: Session, table: type[Base]) -> postgresql.Insert:
    """An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    make: Any = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    # both classes have these methods, but no common base class
    statement: postgresql.Insert = make(table)
    return statement


def insert_if_new(session: Session, table: type[Base]) -> postgresql.Insert:
    """An INSERT that keeps an existing row; the values are passed to `execute`."""
    return insert(session, table).on_conflict_do_nothing()


RowT = TypeVar("RowT")
CursorT = TypeVar("CursorT")


@dataclass(frozen=True, kw_only=True)
class Page(Generic[RowT, CursorT]):
    """Some rows, and the cursor of the last one, after which to continue: None on the last page."""

    rows: tuple[RowT, ...]
    after: CursorT | None


def page(
    session: Session, found: Select[RowT], cursor: Callable[[RowT], CursorT], *, limit: int
) -> Page[RowT, CursorT]:
    """The first `limit` rows of an ordered query. One more is read, which shows whether another page follows."""
    rows = tuple(session.scalars(found.limit(limit + 1)))
    return Page(rows=rows[:limit], after=cursor(rows[limit - 1]) if len(rows) > limit else None)
