"""INSERT … ON CONFLICT, which SQLAlchemy has separately for both databases, and rows in pages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select
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
