"""A service with nothing in it, and clients with tokens. The database is SQLite unless a test says otherwise."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxbisect_db.database import Database
from onnxbisect_db.files import Files
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings
from support.api.callers import Callers

Notified = list[frozenset[str]]


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file at head, to be copied."""
    path = tmp_path_factory.mktemp("tables") / "db.sqlite"
    database = Database(f"sqlite:///{path}")
    database.upgrade()
    database.close()
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Tests that need others override this."""
    return Settings(data=tmp_path / "data", disk_floor=0)


@pytest.fixture
def notified(service: Service) -> Notified:
    """What workers were notified of, one set for each transaction."""
    found: Notified = []
    service.database.listen(lambda topics: found.append(frozenset(topics)))
    return found


@pytest.fixture
def service(settings: Settings, tables: Path) -> Iterator[Service]:
    settings.data.mkdir(parents=True)
    shutil.copy(tables, settings.data / "onnx-bisect.sqlite")
    database = Database(settings.database, durable=False)
    yield Service(settings=settings, database=database, files=Files(settings.files_folder, floor=0))
    database.close()


@pytest.fixture
def callers(service: Service) -> Callers:
    """Clients: `callers.reader()`, `callers.submitter()`, `callers.admin()`, each of a tenant; `callers.nobody()`."""
    return Callers(service)
