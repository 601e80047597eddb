"""The states that rows go through, and other words that columns hold."""

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


class Fault(StrEnum):
    """Whose a failure is: whether it is for the client to mend."""

    #: The model cannot be worked on, or not as it was asked for.
    REQUEST = "request"
    #: No answer could be had: a compiler that is not usable, a bound of this installation, a mishap.
    SERVICE = "service"


class Stage(StrEnum):
    """How far a search has come; each stage is one kind of task."""

    #: The model is read for the target: its units, and what the compiler wants of probes.
    PREPARE = "prepare"
    #: The compiler is asked about changed copies of the whole file.
    FILES = "files"
    #: Probes are asked.
    SEARCH = "search"
    #: The report is written.
    REPORT = "report"
    #: The model is changed, proven and asked about, until it compiles or nothing more can be done.
    REPAIR = "repair"
    OVER = "over"


#: Stages at which models are read beside their compiler.
AT_BACKEND = (Stage.PREPARE, Stage.FILES, Stage.REPAIR)


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


class CulpritState(StrEnum):
    """A culprit, over all jobs of a tenant."""

    OPEN = "open"
    #: Somebody has seen to it: it still fails, and is no news.
    KNOWN = "known"
    #: Every target that it failed on takes its own file in the newest version.
    FIXED = "fixed"


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    SUBMIT = "submit"
    #: Everything, tokens and endpoints included.
    ADMIN = "admin"


class EventType(StrEnum):
    """What happens to a job. Those in `ANNOUNCED` are told to webhooks, too."""

    JOB_QUEUED = "job.queued"
    JOB_STARTED = "job.started"
    SEARCH_PREPARED = "search.prepared"
    PROBE_ASKED = "probe.asked"
    PROBE_ANSWERED = "probe.answered"
    CULPRIT_FOUND = "culprit.found"
    SEARCH_ENDED = "search.ended"
    #: The repair of a target has ended, whatever it came to.
    JOB_REPAIRED = "job.repaired"
    #: It has a verdict.
    JOB_FINISHED = "job.finished"
    #: It ended without one; cancelled jobs, too.
    JOB_FAILED = "job.failed"
    #: Every target that a known culprit failed on takes it now.
    CULPRIT_FIXED = "culprit.fixed"
    #: A culprit that was fixed fails again.
    CULPRIT_RETURNED = "culprit.returned"
    PING = "webhook.ping"


ANNOUNCED = frozenset(
    {
        EventType.JOB_STARTED,
        EventType.CULPRIT_FOUND,
        EventType.JOB_REPAIRED,
        EventType.JOB_FINISHED,
        EventType.JOB_FAILED,
        EventType.CULPRIT_FIXED,
        EventType.CULPRIT_RETURNED,
        EventType.PING,
    }
)
