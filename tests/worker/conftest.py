"""Databases for the steps of jobs: SQLite and a real PostgreSQL, on a clock that only the test moves."""

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from onnxbisect_db.database import Database
from onnxbisect_db.tables import Base
from support.db import postgres_server
from support.db.scenes import Clock

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL of our own, without tables."""
    with postgres_server.running() as folder:
        yield f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture
def new_postgres_url(postgres_url: str) -> str:
    """A database of this test's own, without tables."""
    name = f"own{next(_numbers)}"
    folder = postgres_url.partition("?host=")[2]
    with psycopg.connect(host=folder, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return f"postgresql://postgres@/{name}?host={folder}"


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def _shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, Clock]]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('db') / 'db.sqlite'}"
    else:
        url = request.getfixturevalue("postgres_url")
    clock = Clock()
    database = Database(url, clock=clock, durable=False)
    database.upgrade()
    yield database, clock
    database.close()


@pytest.fixture
def clock(_shared: tuple[Database, Clock]) -> Clock:
    """The clock of `database`."""
    return _shared[1]


@pytest.fixture
def database(_shared: tuple[Database, Clock]) -> Database:
    """A database with nothing in it. One engine serves all tests, since it remembers compiled statements."""
    database, clock = _shared
    clock.at = Clock().at
    with database.transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
    return database
