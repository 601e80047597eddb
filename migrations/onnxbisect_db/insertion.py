"""INSERT … ON CONFLICT, which SQLAlchemy has separately for both databases."""

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from onnxbisect_db.tables import Base


def insert(session: Session, table: type[Base]) -> postgresql.Insert:
    """An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    make: Any = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    # both classes have these methods, but no common base class
    statement: postgresql.Insert = make(table)
    return statement


def insert_if_new(session: Session, table: type[Base]) -> postgresql.Insert:
    """An INSERT that keeps an existing row; the values are passed to `execute`."""
    return insert(session, table).on_conflict_do_nothing()
