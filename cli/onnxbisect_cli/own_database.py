"""The service's database, for the operator's commands: whoever can read its settings may do everything there."""

from collections.abc import Iterator
from contextlib import contextmanager

from onnxbisect_db.database import Database
from onnxbisect_db.errors import SchemaError
from onnxbisect_worker.settings import load_settings


@contextmanager
def own_database() -> Iterator[Database]:
    """The one that the settings name; SchemaError where it has not this version's tables."""
    database = Database(load_settings().database)
    try:
        if not database.is_current():
            raise SchemaError("The database has no tables of this version: run 'onnx-bisect migrate' first.")
        yield database
    finally:
        database.close()
