"""Taking a probe: the next of its backend, for one worker and for so many seconds.

A worker that was given up for dead comes with an earlier epoch (`leases`), and nothing that it says is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, bindparam, select
from sqlalchemy.orm import Session

from onnxbisect.unitset import UnitSet
from onnxbisect_db import events, leases, locking, queues
from onnxbisect_db.database import now
from onnxbisect_db.leases import RowLease
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, Model, Probe, Search
from onnxbisect_db.verdicts import Question


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claimed probe, with what is needed to ask it."""

    probe_id: str
    lease: RowLease
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


def claim(session: Session, request: ClaimRequest) -> Claim | None:
    """Claim the next probe; None where none is waiting."""
    queue = queues.entered(session, request.backend)
    at = now(session)
    # What was chosen may be gone once its job is locked; a queue in such motion is worth a few tries.
    for _ in range(5):
        chosen = queues.best(session, queue, request, at, wait=False)
        if chosen is None and not locking.holds_any(session):
            chosen = queues.best(session, queue, request, at, wait=True)
        if chosen is None:
            return None
        found = session.execute(_WITH_MODEL, {"probe": chosen.probe_id}, execution_options=_AFRESH).one_or_none()
        if found is not None and found[0].state == ProbeState.QUEUED:
            probe, search, model = found
            lease = _take(session, chosen.job, search, probe, request, at)
            return _claim(chosen.job, search, probe, model, lease)
    return None


def _take(session: Session, job: Job, search: Search, probe: Probe, request: ClaimRequest, at: datetime) -> RowLease:
    job.served_at = at
    probe.state = ProbeState.RUNNING
    probe.worker = request.worker
    probe.waits_for = None
    probe.round = search.round + 1
    probe.started_at = at
    facts = {"search": search.id, "probe": probe.id, "why": probe.why, "worker": request.worker}
    events.tell(session, job, EventType.PROBE_ASKED, at, **facts)
    return leases.claim(probe, at, seconds=request.seconds)


def _claim(job: Job, search: Search, probe: Probe, model: Model, lease: RowLease) -> Claim:
    assert search.identity is not None  # noqa: S101 - searches that ask are prepared
    assert search.universe is not None  # noqa: S101
    assert search.started_at is not None  # noqa: S101
    return Claim(
        probe_id=probe.id,
        lease=lease,
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
