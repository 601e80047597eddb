"""Claims probes, and stores what the holder of a claim writes: a key, to compile nothing twice, and the answer.

LostClaimError if the claim is lost, so that nothing that its holder writes counts: the probe has its answer, or another
worker has it.
"""

import hashlib
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Select, and_, bindparam, func, select, update
from sqlalchemy.orm import Session, aliased

from onnxbisect.answer import Answer
from onnxbisect.json_form import from_json, to_json
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_db import events, leases, locking, notices, queues, searches, trouble
from onnxbisect_db.database import insert_if_new, now
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, KeptVerdict, Probe, Search


@dataclass(frozen=True, kw_only=True)
class VerdictKey:
    """The key of a kept answer."""

    tenant: str
    identity: str
    key: str
    attempt: int


def answer_of(row: KeptVerdict) -> Answer:
    """The answer in a row."""
    return Answer(verdict=from_json(row.verdict, Verdict), file_sha256=row.file_sha256, log=row.log)


def keep_verdict(session: Session, question: VerdictKey, answer: Answer, at: datetime) -> None:
    """Keep a final answer, unless there is one: kept answers never change."""
    if not answer.verdict.final:
        return
    kept = {
        **asdict(question),
        "verdict": to_json(answer.verdict),
        "file_sha256": answer.file_sha256,
        "log": answer.log,
        "created_at": at,
    }
    session.execute(insert_if_new(session, KeptVerdict), kept)


@dataclass(frozen=True, kw_only=True)
class Claim(leases.Claimed):
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


def claim(session: Session, request: queues.ClaimRequest) -> Claim | None:
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


@dataclass(frozen=True, kw_only=True)
class Deduplicated:
    """What a worker does next: answer the probe with `known`, compile it, or, if `mine` is False, claim another one."""

    mine: bool
    known: Answer | None = None


def dedupe_by_key(session: Session, claim: Claim, key: str) -> Deduplicated:
    """Store the key of a cut probe, and look for a kept verdict and for a duplicate in flight.

    If another probe with the same key is running, this one returns to the queue and is not claimed before the other one
    has ended.
    """
    question = claim.question(key)
    if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer anyway
        # serialises transactions for the same key; taken before all other locks
        digest = hashlib.sha256(repr(question).encode()).digest()
        session.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], "big", signed=True))))
    claimed = {"probe": claim.probe.id, "my_epoch": claim.lease.epoch}
    found = session.execute(_KNOWN, {**claimed, **asdict(question)}).one_or_none()
    if found is None:
        return Deduplicated(mine=False)
    known, duplicate = found
    waits = known is None and duplicate is not None
    if waits:
        locking.locked(session, claim.job.id)  # before the probe's row, as in all transactions
    # otherwise no job lock: only this function reads the keys of a job's probes
    mine = session.execute(_NAME, {**claimed, "key": key}).one_or_none() is not None
    if waits:
        give_back(session, claim, behind=duplicate)
        return Deduplicated(mine=False)
    return Deduplicated(mine=mine, known=None if known is None else answer_of(known))


def answer(
    session: Session,
    claim: Claim,
    given: Answer,
    *,
    cached: bool = False,
    compiled: bool = True,
    engine_seconds: float = 0.0,
) -> None:
    """Store the verdict, also in the verdict base; `cached`: it was known before.

    Without `compiled`, no compiler was called because the probe could not be cut.
    """
    job, search, probe = _held(session, claim)
    probe.cached = cached
    probe.engine_seconds = engine_seconds
    at = now(session)
    if not cached and probe.key is not None:
        keep_verdict(session, claim.question(probe.key), given, at)
    _answer(session, job, search, probe, given, at, compiled=compiled)


def give_back(session: Session, claim: Claim, *, spent: bool = False, behind: str | None = None) -> None:
    """Return the probe to the queue, which does not count as a failed attempt.

    The worker stops; or the probe waits for its duplicate `behind`; or, `spent`, the search has no time left, and no
    worker claims the probe before the coordinator has seen that.
    """
    _, search, probe = _held(session, claim)
    probe.duplicate_id = behind
    _put_back(session, search, probe)
    if spent:
        probe.state = ProbeState.DROPPED
        searches.mark_dirty(session, search)


def record_loss(session: Session, claim: Claim, what: str) -> None:
    """Return the probe to the queue after a failure that says nothing about the model, described by `what`.

    It is repeated after increasing delays.
    """
    _, search, probe = _held(session, claim)
    _put_back(session, search, probe)
    trouble.lose(probe, what, now(session))


def record_crash(session: Session, claim: Claim, what: str, log: str = "") -> None:
    """Record that its model process or compiler died, described by `what`; `log` is the compiler's output.

    The first time, the probe is repeated alone; the second time it ends as unresolved, and the job continues.
    """
    job, search, probe = _held(session, claim)
    if not trouble.crash(probe, what):
        _put_back(session, search, probe)
        return
    message = f"{trouble.MOST_CRASHES} times, the last time alone, this ended without an answer: {what}"
    verdict = Verdict(status=Status.UNRESOLVED, kind=Kind.CRASH, message=message)
    _answer(session, job, search, probe, Answer(verdict=verdict, log=log), now(session))


def expire(session: Session, probe_id: str) -> bool:
    """Take the probe from a worker whose lease has expired. False if it has not."""
    known = session.get(Probe, probe_id)
    search = session.get(Search, known.search_id) if known is not None else None
    job = locking.locked(session, search.job_id) if search is not None else None
    # the row is locked, too: renewing a lease does not lock the job
    probe = session.get(Probe, probe_id, with_for_update=True, populate_existing=True)
    if job is None or search is None or probe is None or probe.state != ProbeState.RUNNING:
        return False
    at = now(session)
    if leases.lasts(probe.lease_until, at):
        return False
    _put_back(session, search, probe)
    trouble.lose(probe, "The worker that asked a question was gone before it had the answer.", at)
    return True


def _held(session: Session, claim: Claim) -> tuple[Job, Search, Probe]:
    """The job, locked, with search and probe."""
    job = locking.locked(session, claim.job.id)
    found = session.execute(_WITH_SEARCH, {"probe": claim.probe.id}).one_or_none()
    if job is None or found is None or not leases.is_held(found[0], claim.lease):
        raise LostClaimError(f"Another worker has probe {claim.probe.id} now, or its job has ended.")
    probe, search = found
    return job, search, probe


def _put_back(session: Session, search: Search, probe: Probe) -> None:
    probe.state = ProbeState.QUEUED
    probe.lease_until = None
    probe.worker = ""
    notices.notify(session, notices.backend(search.backend))


def _answer(
    session: Session, job: Job, search: Search, probe: Probe, given: Answer, at: datetime, *, compiled: bool = True
) -> None:
    probe.state = ProbeState.DONE
    probe.verdict = to_json(given.verdict)
    probe.file_sha256 = given.file_sha256
    probe.log = "" if probe.cached else given.log
    probe.lease_until = None
    probe.ended_at = at
    if not probe.cached:
        search.calls += compiled
        search.round = max(search.round, probe.round)
    facts = {"search": search.id, "probe": probe.id, "status": given.verdict.status, "cached": probe.cached}
    events.tell(session, job, EventType.PROBE_ANSWERED, at, **facts)
    searches.mark_dirty(session, search)


def _known() -> Select[KeptVerdict, str]:
    """A query for the kept verdict and the running duplicate of a key; no row if the claim is lost."""
    same = and_(
        KeptVerdict.tenant == bindparam("tenant"),
        KeptVerdict.identity == bindparam("identity"),
        KeptVerdict.key == bindparam("key"),
        KeptVerdict.attempt == bindparam("attempt"),
    )
    other = aliased(Probe)
    duplicate = (
        select(other.id)
        .join(Search, Search.id == other.search_id)
        .join(Job, Job.id == Search.job_id)
        .where(other.key == bindparam("key"), other.attempt == bindparam("attempt"), other.state == ProbeState.RUNNING)
        .where(Search.identity == bindparam("identity"), Job.tenant == bindparam("tenant"), other.id != Probe.id)
        .limit(1)
    )
    return (
        select(KeptVerdict, duplicate.scalar_subquery()).select_from(Probe).outerjoin(KeptVerdict, same).where(*_MINE)
    )


_WITH_SEARCH = (
    select(Probe, Search)
    .join(Search, Search.id == Probe.search_id)
    .where(Probe.id == bindparam("probe"))
    .execution_options(populate_existing=True)
)
_MINE = (
    Probe.id == bindparam("probe"),
    Probe.epoch == bindparam("my_epoch"),
    Probe.state == ProbeState.RUNNING,
)
_KNOWN = _known()
_NAME = update(Probe).where(*_MINE).values(key=bindparam("key")).returning(Probe.id)
