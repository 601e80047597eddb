"""Every test here runs on SQLite and, in `make test-all`, on a real PostgreSQL, on a clock that only the test moves."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from onnxbisect_db.database import Database
from onnxbisect_db.tables import Base
from support.db import postgres_server
from support.db.scenes import Clock

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server.running() as folder:
        yield folder


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """URLs of databases without tables."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path_factory.mktemp('db') / 'db.sqlite'}"
    folder: str = request.getfixturevalue("postgres")
    return lambda: _created(folder, "template0")


@pytest.fixture(scope="session")
def template(new_url: Callable[[], str]) -> str:
    """A database at head, to be copied."""
    url = new_url()
    database = Database(url)
    database.upgrade()
    database.close()
    return url


@pytest.fixture
def url(template: str, tmp_path: Path) -> str:
    """A database at head, of this test only."""
    if template.startswith("sqlite"):
        shutil.copy(template.removeprefix("sqlite:///"), tmp_path / "db.sqlite")
        return f"sqlite:///{tmp_path / 'db.sqlite'}"
    name, _, folder = template.removeprefix("postgresql://postgres@/").partition("?host=")
    return _created(folder, name)


@pytest.fixture(scope="session")
def shared(new_url: Callable[[], str]) -> Iterator[tuple[Database, Clock]]:
    clock = Clock()
    database = Database(new_url(), clock=clock, durable=False)
    database.upgrade()
    yield database, clock
    database.close()


@pytest.fixture
def clock(shared: tuple[Database, Clock]) -> Clock:
    """The clock of `database`."""
    return shared[1]


@pytest.fixture
def database(shared: tuple[Database, Clock]) -> Database:
    """A database at head with nothing in it. One engine serves all tests, since it remembers compiled statements."""
    database, clock = shared
    clock.at = Clock().at
    with database.transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
    return database


def _created(folder: str, template: str) -> str:
    name = f"test{next(_numbers)}"
    with psycopg.connect(host=folder, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return f"postgresql://postgres@/{name}?host={folder}"
