"""Common parts of the tables."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from onnxbisect_db.columns import Moment, Wording

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
