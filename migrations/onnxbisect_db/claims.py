"""Claims probes: the next one of a backend, for one worker, for a number of seconds.

A worker whose lease has expired holds an earlier epoch (`leases`), and nothing that it writes counts.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from onnxbisect.answer import Answer
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict
from onnxbisect_db import events, leases, queues
from onnxbisect_db.database import now
from onnxbisect_db.leases import Claimed
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.statements import insert_if_new
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import KeptVerdict, Probe


@dataclass(frozen=True, kw_only=True)
class VerdictKey:
    """The key of a kept answer."""

    tenant: str
    identity: str
    key: str
    attempt: int


def answer_of(row: KeptVerdict) -> Answer:
    """The answer in a row."""
    return Answer(verdict=Verdict.from_json(row.verdict), file_sha256=row.file_sha256, log=row.log)


def keep_verdict(session: Session, question: VerdictKey, answer: Answer, at: datetime) -> None:
    """Keep a final answer, unless there is one: kept answers never change."""
    if not answer.verdict.final:
        return
    kept = {
        **asdict(question),
        "verdict": answer.verdict.to_json(),
        "file_sha256": answer.file_sha256,
        "log": answer.log,
        "created_at": at,
    }
    session.execute(insert_if_new(session, KeptVerdict), kept)


@dataclass(frozen=True, kw_only=True)
class Claim(Claimed):
    """A claimed probe."""

    probe: Probe

    def __str__(self) -> str:
        return f"probe {self.probe.id}"

    @property
    def units(self) -> UnitSet:
        """The units to compile."""
        return int(self.probe.units, 16)

    def question(self, key: str) -> VerdictKey:
        """The key of the answer in the verdict base, once the probe's key is known."""
        assert self.search.identity is not None  # noqa: S101 - searches that ask are prepared
        return VerdictKey(tenant=self.job.tenant, identity=self.search.identity, key=key, attempt=self.probe.attempt)


def claim(session: Session, request: ClaimRequest) -> Claim | None:
    """Claim the next probe; None if none is waiting."""
    queue = queues.queue_for_claim(session, request.backend)
    at = now(session)
    for job, search, model, probe in queues.next_probes(session, queue, request, at):
        if probe.state == ProbeState.QUEUED:
            job.served_at = at
            probe.state = ProbeState.RUNNING
            probe.worker = request.worker
            probe.duplicate_id = None
            probe.round = search.round + 1
            probe.started_at = at
            facts = {"search": search.id, "probe": probe.id, "why": probe.why, "worker": request.worker}
            events.tell(session, job, EventType.PROBE_ASKED, at, **facts)
            lease = leases.claim(probe, at, seconds=request.seconds)
            return Claim(lease=lease, job=job, model=model, search=search, probe=probe, alone=probe.crashes > 0)
    return None
