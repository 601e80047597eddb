"""Lists in pages: some rows of a query, and where the next page begins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import Session

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
