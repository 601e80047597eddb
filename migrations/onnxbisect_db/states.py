"""States of rows, and other enumerated column values."""

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job, and of each of its searches."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class Fault(StrEnum):
    """Who can mend a failure: the client, or the operator."""

    #: The model or the request is invalid.
    REQUEST = "request"
    #: The service failed: an unusable compiler, a limit of this installation, an accident.
    SERVICE = "service"


class Stage(StrEnum):
    """How far a search has come; each stage is one kind of work."""

    #: Read the model for the target: its units and the compiler's probe format.
    PREPARE = "prepare"
    #: Compile changed copies of the whole file.
    FILES = "files"
    #: Compile probes.
    SEARCH = "search"
    #: Write the report.
    REPORT = "report"
    #: Change the model, prove and compile it, until it compiles or no change is left.
    REPAIR = "repair"
    #: Measure which nodes must stay in high precision.
    PRECISION = "precision"
    OVER = "over"


#: Stages that need the model's compiler.
AT_BACKEND = (Stage.PREPARE, Stage.FILES, Stage.REPAIR, Stage.PRECISION)
#: Those that compile without probes, one compile at a time.
COMPILING = (Stage.FILES, Stage.REPAIR, Stage.PRECISION)


class ProbeState(StrEnum):
    """The state of a probe: queued, claimed, or answered."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    #: Its answer is no longer needed.
    DROPPED = "dropped"


class DeliveryState(StrEnum):
    """A webhook delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    #: All attempts failed, or its endpoint was disabled.
    FAILED = "failed"


class WebhookFormat(StrEnum):
    """The form of the messages to an endpoint."""

    #: The event, signed as the Standard Webhooks specification says.
    JSON = "json"
    FEISHU = "feishu"
    DINGTALK = "dingtalk"
    WECOM = "wecom"
    SLACK = "slack"
    TEAMS = "teams"


class CulpritState(StrEnum):
    """The state of a culprit over all jobs of a tenant."""

    OPEN = "open"
    #: Marked as known by a user; it still fails.
    KNOWN = "known"
    #: The newest version of every target that it failed on accepts its own file.
    FIXED = "fixed"


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    SUBMIT = "submit"
    #: Everything of its tenant, including tokens and endpoints.
    ADMIN = "admin"
    #: What concerns all tenants: the metrics, and nothing else. Only made on the server.
    OPERATOR = "operator"


class EventType(StrEnum):
    """Events of a job. Those in `ANNOUNCED` also go to webhooks."""

    JOB_QUEUED = "job.queued"
    JOB_STARTED = "job.started"
    SEARCH_PREPARED = "search.prepared"
    PROBE_ASKED = "probe.asked"
    PROBE_ANSWERED = "probe.answered"
    CULPRIT_FOUND = "culprit.found"
    SEARCH_ENDED = "search.ended"
    #: The repair of a target has ended, with any outcome.
    JOB_REPAIRED = "job.repaired"
    #: The metric was measured with some nodes of a target kept in high precision.
    PRECISION_ASKED = "precision.asked"
    #: The search for a target's nodes that must stay precise has ended, with any outcome.
    JOB_MEASURED = "job.measured"
    #: The job has a verdict.
    JOB_FINISHED = "job.finished"
    #: The job ended without a verdict, or was cancelled.
    JOB_FAILED = "job.failed"
    #: Every target that a known culprit failed on accepts it now.
    CULPRIT_FIXED = "culprit.fixed"
    #: A culprit that was fixed fails again.
    CULPRIT_RETURNED = "culprit.returned"
    PING = "webhook.ping"


ANNOUNCED = frozenset(
    {
        EventType.JOB_STARTED,
        EventType.CULPRIT_FOUND,
        EventType.JOB_REPAIRED,
        EventType.JOB_MEASURED,
        EventType.JOB_FINISHED,
        EventType.JOB_FAILED,
        EventType.CULPRIT_FIXED,
        EventType.CULPRIT_RETURNED,
        EventType.PING,
    }
)
#: What a chat hears of where no events are named: how things end, and not each step.
CHAT_EVENTS = frozenset(
    {EventType.JOB_FINISHED, EventType.JOB_FAILED, EventType.CULPRIT_FIXED, EventType.CULPRIT_RETURNED}
)
