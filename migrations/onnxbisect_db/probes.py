"""What becomes of a probe that a worker has claimed: kept alive, answered exactly once, or given back."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from onnxbisect.answer import Answer
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect.verdict_json import to_json
from onnxbisect_db import events, leases, locking, searches, trouble, verdicts
from onnxbisect_db.claims import Claim
from onnxbisect_db.database import now
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, Probe, Search


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Whether an answer counts: it does not where there was one already, or where the claim is lost. And whether the
    caller is to ring for the search: not where somebody has rung, or will when he lets go of it.
    """

    counts: bool
    ring: bool


def heartbeat(session: Session, claim: Claim, *, seconds: float) -> bool:
    """Hold it for longer. False where it is lost, or nobody wants it any more: kill the compiler."""
    until = now(session) + timedelta(seconds=seconds)
    mine = (Probe.id == claim.probe_id, Probe.claims == claim.number, Probe.state == ProbeState.RUNNING)
    renewed = update(Probe).where(*mine).values(lease_until=until).returning(Probe.id)
    return session.scalars(renewed).one_or_none() is not None


def wanted(session: Session, claim: Claim) -> bool:
    """What `heartbeat` returns, for the price of a read: often enough that a cancelled job's compiler dies at once."""
    mine = (Probe.id == claim.probe_id, Probe.claims == claim.number, Probe.state == ProbeState.RUNNING)
    return session.scalars(select(Probe.id).where(*mine)).one_or_none() is not None


def answer(
    session: Session,
    claim: Claim,
    given: Answer,
    *,
    cached: bool = False,
    compiled: bool = True,
    engine_seconds: float = 0.0,
    keep: bool = True,
) -> Settled:
    """Write what the compiler said, or, `cached`, what it had said before; the verdict base keeps it for others.
    Without `compiled` no compiler was called, since the probe could not be cut.
    """
    held = _held(session, claim)
    if held is None:
        return Settled(counts=False, ring=False)
    job, search, probe = held
    probe.cached = cached
    probe.engine_seconds = engine_seconds
    at = now(session)
    if keep and not cached and probe.key is not None:
        verdicts.put(session, claim.question(probe.key), given, at)
    return Settled(counts=True, ring=_answer(session, job, search, probe, given, at, compiled=compiled))


def give_back(session: Session, claim: Claim, *, spent: bool = False, behind: str | None = None) -> bool:
    """Not answered, and not for want of trying: the worker stops, or the very same is asked by the probe `behind` which
    it is to wait, or, `spent`, the search has no time left. Then nobody takes it again before the coordinator has seen
    that: the caller rings for it. False where it is not this worker's any more.
    """
    held = _held(session, claim)
    if held is None:
        return False
    _, search, probe = held
    _put_back(probe)
    probe.waits_for = behind
    if spent:
        probe.state = ProbeState.DROPPED
        searches.mark_stale(search, now(session))
    return True


def lost(session: Session, claim: Claim, what: str) -> bool:
    """Something was in the way that says nothing about the model, as `what` tells in a sentence: it is asked again,
    after longer and longer pauses. False where it is not this worker's any more.
    """
    held = _held(session, claim)
    if held is None:
        return False
    _, _, probe = held
    _put_back(probe)
    trouble.lose(probe, what, now(session))
    return True


def crashed(session: Session, claim: Claim, what: str, log: str = "") -> bool:
    """The process died of it that has the model, or the compiler, as `what` tells in a sentence; `log` is what the
    compiler said until then. The first time it is asked again, alone; the second time it ends as unresolved, and its
    job goes on around it. True where it is answered now: the caller rings for the search.
    """
    held = _held(session, claim)
    if held is None:
        return False
    job, search, probe = held
    if not trouble.crash(probe, what):
        _put_back(probe)
        return False
    message = f"{trouble.MOST_CRASHES} times, the last time alone, this ended without an answer: {what}"
    verdict = Verdict(status=Status.UNRESOLVED, kind=Kind.CRASH, message=message)
    _answer(session, job, search, probe, Answer(verdict=verdict, log=log), now(session))
    return True


def expire(session: Session, probe_id: str) -> bool:
    """Take it from a worker that has let its lease run out, for whatever reason. False where none has."""
    known = session.get(Probe, probe_id)
    search = session.get(Search, known.search_id) if known is not None else None
    job = locking.locked(session, search.job_id) if search is not None else None
    # also the row itself: a heartbeat does not lock the job
    probe = session.get(Probe, probe_id, with_for_update=True, populate_existing=True)
    if job is None or search is None or probe is None or probe.state != ProbeState.RUNNING:
        return False
    at = now(session)
    if leases.lasts(probe.lease_until, at):
        return False
    _put_back(probe)
    trouble.lose(probe, "The worker that asked a question was gone before it had the answer.", at)
    return True


def _held(session: Session, claim: Claim) -> tuple[Job, Search, Probe] | None:
    """The job, locked, with search and probe as they are; None where the claim is lost."""
    job = locking.locked(session, claim.job_id)
    if job is None:
        return None
    found = session.execute(_WITH_SEARCH, {"probe": claim.probe_id}, execution_options=_AFRESH).one_or_none()
    if found is None or found[0].state != ProbeState.RUNNING or found[0].claims != claim.number:
        return None
    probe, search = found
    return job, search, probe


def _put_back(probe: Probe) -> None:
    probe.state = ProbeState.QUEUED
    probe.lease_until = None
    probe.worker = ""


def _answer(
    session: Session, job: Job, search: Search, probe: Probe, given: Answer, at: datetime, *, compiled: bool = True
) -> bool:
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
    return searches.mark_stale(search, at)


_AFRESH = {"populate_existing": True}
_WITH_SEARCH = select(Probe, Search).join(Search, Search.id == Probe.search_id).where(Probe.id == bindparam("probe"))
