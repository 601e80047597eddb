"""Column types with the same meaning in SQLite and PostgreSQL, and identifiers of rows."""

import os
import re
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, DateTime, Dialect, String, Text, literal_column
from sqlalchemy.types import TypeDecorator

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Moment(TypeDecorator[datetime]):
    """An instant. Python sees aware datetimes in UTC; SQLite stores them without a zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the database."""
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """From the database."""
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class Wording(TypeDecorator[str]):
    """Untrusted text, such as compilers' logs. PostgreSQL refuses NUL, and neither database accepts lone surrogates.

    U+FFFD replaces both.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """To the database."""
        if value is None:
            return None
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)


def constant(value: int | StrEnum) -> ColumnElement[Any]:
    """A value written into the statement instead of a parameter.

    PostgreSQL then knows how rare a state is, and does not take its plan of the prepared statement for a worse one than
    it could make for the parameters, which it would make anew each time.
    """
    return literal_column(f"'{value}'", String()) if isinstance(value, StrEnum) else literal_column(f"{value}")


def new_id() -> str:
    """A UUID of version 7 (RFC 9562) with the fraction of the millisecond in its first 12 random bits (section 6.2,
    method 3).

    Ids created by one process sort in the order of creation.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = (nanoseconds << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8)) >> 2
    return str(UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random))
