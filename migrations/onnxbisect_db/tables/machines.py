"""The processes that do the work, and what they share out among them."""

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from onnxbisect_db.tables.base import Base


class Worker(Base):
    """A process that takes probes, as it last told of itself."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    backends: Mapped[list[Any]]
    #: Tool and version of each backend, or the sentence that says why it cannot be used.
    tools: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The backends whose tool does not work there.
    unusable: Mapped[list[Any]]
    #: By backend, how far its compiles are kept away from the rest of that machine.
    isolation: Mapped[dict[str, Any]]
    slots: Mapped[int] = mapped_column(default=1)
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class Queue(Base):
    """The queue of one backend. Where it has a limit, a claim locks this row."""

    __tablename__ = "queue"

    backend: Mapped[str] = mapped_column(String(128), primary_key=True)
    #: How many of its probes may run at a time, such as the seats of a licence; None for no bound.
    at_most: Mapped[int | None]


class Lease(Base):
    """Something that one process at a time may do, such as reconciling."""

    __tablename__ = "lease"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(128), default="")
    until: Mapped[datetime]
