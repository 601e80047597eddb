"""What all tables share."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from onnxbisect_db.columns import Moment, Wording

#: Without names of our own, SQLite's constraints have none and cannot be migrated.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


_JSON = JSON(none_as_null=True)


class Base(DeclarativeBase):
    """The tables' registry."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {datetime: Moment(), dict[str, Any]: _JSON, list[Any]: _JSON, str: Wording()}  # noqa: RUF012


class Leased:
    """A row that one worker at a time works on (`onnxbisect_db.leases`)."""

    #: How often it was claimed. What the holder of an earlier claim writes does not count.
    epoch: Mapped[int] = mapped_column(default=0)
    #: Until when the holder of the latest claim has it, unless it renews; None: nobody has it.
    lease_until: Mapped[datetime | None] = mapped_column(default=None)


class Troubled:
    """A row whose work may end without an answer, and is tried again (`onnxbisect_db.trouble`)."""

    #: How often in a row it was lost in a way that says nothing about the model.
    losses: Mapped[int] = mapped_column(default=0)
    #: How often in a row the process died of it that has the model, or its compiler.
    crashes: Mapped[int] = mapped_column(default=0, server_default="0")
    #: Nobody takes it before then.
    retry_at: Mapped[datetime | None] = mapped_column(default=None)
    #: What happened the last time, as a sentence.
    trouble: Mapped[str] = mapped_column(default="", server_default="")
