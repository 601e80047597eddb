"""Tables of worker processes, queues, and tasks of one process at a time."""

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from onnxbisect_db.tables.base import Base


class Worker(Base):
    """A worker process, as of its last heartbeat."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    backends: Mapped[list[Any]]
    #: Tool and version of each backend, or a sentence why it is unusable.
    tools: Mapped[dict[str, Any]] = mapped_column(default=dict)
    #: The backends whose tool is unusable there.
    unusable: Mapped[list[Any]]
    #: The isolation of compiles on that machine, by backend.
    isolation: Mapped[dict[str, Any]]
    slots: Mapped[int] = mapped_column(default=1)
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class Queue(Base):
    """The queue of one backend. If it has a limit, a claim locks this row."""

    __tablename__ = "queue"

    backend: Mapped[str] = mapped_column(String(128), primary_key=True)
    #: How many of its probes may run at a time, such as licence seats; None for no limit.
    at_most: Mapped[int | None]


class Lease(Base):
    """A task of one process at a time, such as reconciling."""

    __tablename__ = "lease"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(128), default="")
    until: Mapped[datetime]
