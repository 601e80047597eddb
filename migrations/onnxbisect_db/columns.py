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
    """A UUID of version 7 (RFC 9562): random, and sorted by the millisecond in which it was made."""
    stamp = time.time_ns() // 1_000_000
    number = (stamp & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10))
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=number))
