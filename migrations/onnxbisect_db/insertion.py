"""INSERT … ON CONFLICT, which both databases have and SQLAlchemy spells for each of them."""

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from onnxbisect_db.tables import Base


def insert(session: Session, table: type[Base]) -> postgresql.Insert:
    """An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    make: Any = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    # the two classes have these methods in common, and no base class that says so
    statement: postgresql.Insert = make(table)
    return statement


def insert_if_new(session: Session, table: type[Base]) -> postgresql.Insert:
    """An INSERT that leaves the row that is there; what it inserts is given to `execute`."""
    return insert(session, table).on_conflict_do_nothing()
