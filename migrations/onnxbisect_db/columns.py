"""Column types that mean the same in SQLite and in PostgreSQL, and the identifiers of rows."""

import os
import re
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Moment(TypeDecorator[datetime]):
    """An instant. Python sees aware datetimes in UTC; SQLite, which has no zones, keeps them without."""

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
    """Text from anywhere, compilers' logs included. PostgreSQL refuses NUL, and neither takes half of a surrogate
    pair; U+FFFD stands for either.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """To the database."""
        if value is None:
            return None
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)


def new_id() -> str:
    """A UUID of version 7 (RFC 9562), its first 12 random bits replaced by the fraction of the millisecond (method 3 of
    section 6.2): what one process makes sorts in the order in which it was made.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = (nanoseconds << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8)) >> 2
    return str(UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random))
