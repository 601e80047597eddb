"""Taking a probe: the next of its backend, for one worker and for so many seconds.

A claim has a number. Whoever comes with an older one was given up for dead: another worker may have the probe, and
nothing that the first one says is written any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, select
from sqlalchemy.orm import Session

from onnxbisect.unitset import UnitSet
from onnxbisect_db import bells, events, locking, queues
from onnxbisect_db.database import now
from onnxbisect_db.one_at_a_time import one_at_a_time
from onnxbisect_db.queues import Hand
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, Model, Probe, Queue, Search
from onnxbisect_db.verdicts import Question


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A probe in a worker's hands, with what is needed to ask it. `number` is the fence."""

    probe_id: str
    number: int
    search_id: str
    job_id: str
    tenant: str
    model_sha256: str
    model_name: str
    #: SHA-256 of the ONNX file, and by location of the files of its external data.
    onnx: str
    data: Mapping[str, str]
    request: Mapping[str, Any]
    backend: str
    options: Mapping[str, Any]
    #: Of the search: where its budget is counted from.
    started_at: datetime
    identity: str
    universe: str
    units: UnitSet
    attempt: int
    why: str
    key: str | None
    #: Whether it is asked once more since a process died of it: in a new process, with nothing beside it.
    alone: bool

    def question(self, key: str) -> Question:
        """What an answer is kept under, once the key is known."""
        return Question(tenant=self.tenant, identity=self.identity, key=key, attempt=self.attempt)


def claim(session: Session, hand: Hand) -> Claim | None:
    """Take the next probe; None where none is waiting."""
    return take(session, hand, enter(session, hand))


def enter(session: Session, hand: Hand) -> Queue:
    """The queue to `take` from, before any job is locked."""
    if hand.at_most is not None:
        one_at_a_time(session, ("hands", hand.worker))
    queue = queues.entered(session, hand.backend)
    bells.heeded(queue)
    session.flush()
    return queue


def take(session: Session, hand: Hand, queue: Queue) -> Claim | None:
    """Take the next probe. Who has locked a job, which the next one's need not be, waits for no other one: None where
    others have locked what is left.
    """
    at = now(session)
    # What was chosen may be gone once its job is locked; a queue in such motion is worth a few tries.
    for _ in range(5):
        chosen = queues.best(session, queue, hand, at, wait=False)
        if chosen is None and not locking.holds_any(session):
            chosen = queues.best(session, queue, hand, at, wait=True)
        if chosen is None:
            return None
        found = session.execute(_WITH_MODEL, {"probe": chosen.probe_id}, execution_options=_AFRESH).one_or_none()
        if found is not None and found[0].state == ProbeState.QUEUED:
            probe, search, model = found
            _take(session, chosen.job, search, probe, hand, at)
            return _claim(chosen.job, search, probe, model)
    return None


def _take(session: Session, job: Job, search: Search, probe: Probe, hand: Hand, at: datetime) -> None:
    job.served_at = at
    probe.state = ProbeState.RUNNING
    probe.claims += 1
    probe.worker = hand.worker
    probe.lease_until = at + timedelta(seconds=hand.seconds)
    probe.waits_for = None
    probe.round = search.round + 1
    probe.started_at = at
    facts = {"search": search.id, "probe": probe.id, "why": probe.why, "worker": hand.worker}
    events.tell(session, job, EventType.PROBE_ASKED, at, **facts)


def _claim(job: Job, search: Search, probe: Probe, model: Model) -> Claim:
    assert search.identity is not None  # noqa: S101 - searches that ask are prepared
    assert search.universe is not None  # noqa: S101
    assert search.started_at is not None  # noqa: S101
    return Claim(
        probe_id=probe.id,
        number=probe.claims,
        search_id=search.id,
        job_id=job.id,
        tenant=job.tenant,
        model_sha256=job.model_sha256,
        model_name=job.model_name,
        onnx=search.onnx or model.onnx_file,
        data=model.files if search.data is None else search.data,
        request=job.request if search.request is None else search.request,
        backend=search.backend,
        options=search.options,
        started_at=search.started_at,
        identity=search.identity,
        universe=search.universe,
        units=int(probe.units, 16),
        attempt=probe.attempt,
        why=probe.why,
        key=probe.key,
        alone=probe.crashes > 0,
    )


_AFRESH = {"populate_existing": True}
_WITH_MODEL = (
    select(Probe, Search, Model)
    .join(Search, Search.id == Probe.search_id)
    .join(Job, Job.id == Search.job_id)
    .join(Model, and_(Model.tenant == Job.tenant, Model.sha256 == Job.model_sha256))
    .where(Probe.id == bindparam("probe"))
)
