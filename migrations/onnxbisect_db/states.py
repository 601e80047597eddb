"""The states that rows go through."""

from enum import StrEnum


class JobState(StrEnum):
    """A job, and each of its searches."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether it stays as it is."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class Stage(StrEnum):
    """How far a search has come; each stage is one kind of task."""

    #: The model is read for the target: its units, and what the compiler wants of probes.
    PREPARE = "prepare"
    #: Probes are asked.
    SEARCH = "search"
    #: The report is written.
    REPORT = "report"
    OVER = "over"


class ProbeState(StrEnum):
    """A probe: queued, in the hands of a worker that holds its lease, or answered."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    #: Nobody needs its answer any more.
    DROPPED = "dropped"


class DeliveryState(StrEnum):
    """A webhook delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    #: Given up, or its endpoint was disabled.
    FAILED = "failed"
