"""Common parts of the tables."""

import os
import re
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, ColumnElement, DateTime, Dialect, MetaData, String, Text, literal_column
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
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


#: Explicit names, because unnamed constraints of SQLite cannot be migrated.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


_JSON = JSON(none_as_null=True)


class Base(DeclarativeBase):
    """The registry of tables."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {datetime: Moment(), dict[str, Any]: _JSON, list[Any]: _JSON, str: Wording()}  # noqa: RUF012


class Leased:
    """A row that one worker at a time works on (`onnxbisect_db.leases`)."""

    #: How often it was claimed. Writes of the holder of an earlier claim have no effect.
    epoch: Mapped[int] = mapped_column(default=0)
    #: The end of the latest claim, unless renewed; None: it is free.
    lease_until: Mapped[datetime | None] = mapped_column(default=None)


class Troubled:
    """A row whose work may fail and is retried (`onnxbisect_db.trouble`)."""

    #: Consecutive losses, which say nothing about the model.
    losses: Mapped[int] = mapped_column(default=0)
    #: Consecutive crashes of its model process or compiler.
    crashes: Mapped[int] = mapped_column(default=0, server_default="0")
    #: It is not claimed before this time.
    retry_at: Mapped[datetime | None] = mapped_column(default=None)
    #: The latest failure, as a sentence.
    trouble: Mapped[str] = mapped_column(default="", server_default="")
