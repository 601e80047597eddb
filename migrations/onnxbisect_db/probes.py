"""The way of a probe through the hands of workers: claimed, kept alive, answered exactly once.

A claim has a number. Whoever comes with an older one was given up for dead: another worker may have the probe, and
nothing that the first one says is written any more.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, select, update
from sqlalchemy.orm import Session

from onnxbisect.answer import Answer
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect.verdict_json import to_json
from onnxbisect_db import bells, events, lifecycle, queues, searches, verdicts
from onnxbisect_db.database import now
from onnxbisect_db.one_at_a_time import one_at_a_time
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, Model, Probe, Search
from onnxbisect_db.verdicts import Question

#: Workers that may vanish with a probe before it counts as what kills them.
MOST_LOSSES = 3


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
    #: Of the model's external data: location to SHA-256.
    model_files: Mapping[str, str]
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

    def question(self, key: str) -> Question:
        """What an answer is kept under, once the key is known."""
        return Question(tenant=self.tenant, identity=self.identity, key=key, attempt=self.attempt)


@dataclass(frozen=True, kw_only=True)
class Named:
    """What to do with a probe whose key is known: answer with what is `known`, or compile, or (`mine` is False) take
    another one.
    """

    mine: bool
    known: Answer | None = None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Whether an answer counts: it does not where there was one already, or where the claim is lost. And whether the
    caller is to ring for the search: not where somebody has rung, or will when he lets go of it.
    """

    counts: bool
    ring: bool


def claim(
    session: Session,
    backend: str,
    *,
    worker: str,
    seconds: float,
    at_most: int | None = None,
    warm: Collection[str] = (),
) -> Claim | None:
    """Take the next probe of a backend for so many seconds; None where none is waiting, or the worker has `at_most` of
    them in hand. `warm` are universes whose models the caller has in memory.
    """
    if at_most is not None:
        one_at_a_time(session, ("hands", worker))
    queue = queues.entered(session, backend)
    bells.heeded(queue)
    at, locked = now(session), False
    # What was chosen may be gone once its job is locked; a queue in such motion is worth a few tries.
    for _ in range(5):
        chosen = queues.best(session, queue, at, wait=False, worker=worker, at_most=at_most, warm=warm)
        if chosen is None and not locked:  # who has locked a job waits for no other one
            chosen = queues.best(session, queue, at, wait=True, worker=worker, at_most=at_most, warm=warm)
        if chosen is None:
            return None
        locked = True
        found = session.execute(_WITH_MODEL, {"probe": chosen.probe_id}, execution_options=_AFRESH).one_or_none()
        if found is not None and found[0].state == ProbeState.QUEUED:
            probe, search, files = found
            _take(session, chosen.job, search, probe, worker, at, seconds)
            return _claim(chosen.job, search, probe, files or {})
    return None


def _take(session: Session, job: Job, search: Search, probe: Probe, worker: str, at: datetime, seconds: float) -> None:
    job.served_at = at
    probe.state = ProbeState.RUNNING
    probe.claims += 1
    probe.worker = worker
    probe.lease_until = at + timedelta(seconds=seconds)
    probe.waits_for = None
    probe.round = search.round + 1
    probe.started_at = at
    facts = {"search": search.id, "probe": probe.id, "why": probe.why, "worker": worker}
    events.tell(session, job, EventType.PROBE_ASKED, at, **facts)


def _claim(job: Job, search: Search, probe: Probe, files: Mapping[str, str]) -> Claim:
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
        model_files=files,
        request=job.request,
        backend=search.backend,
        options=search.options,
        started_at=search.started_at,
        identity=search.identity,
        universe=search.universe,
        units=int(probe.units, 16),
        attempt=probe.attempt,
        why=probe.why,
        key=probe.key,
    )


def named(session: Session, claim: Claim, key: str) -> Named:
    """The probe is cut and this is its key: look whether it was answered before, or is being asked elsewhere.

    In that case it goes back to the queue, where nobody takes it until the other one is done.
    """
    one_at_a_time(session, claim.question(key))  # of two that come at once only one asks
    held = _held(session, claim)
    if held is None:
        return Named(mine=False)
    _, _, probe = held
    probe.key = key
    known = verdicts.get(session, claim.question(key))
    if known is not None:
        return Named(mine=True, known=known)
    twin = (
        select(Probe.id)
        .join(Search, Search.id == Probe.search_id)
        .join(Job, Job.id == Search.job_id)
        .where(Probe.key == key, Probe.attempt == claim.attempt, Probe.state == ProbeState.RUNNING)
        .where(Search.identity == claim.identity, Job.tenant == claim.tenant, Probe.id != probe.id)
        .limit(1)
    )
    other = session.scalars(twin).one_or_none()
    if other is None:
        return Named(mine=True)
    _put_back(probe)
    probe.waits_for = other
    return Named(mine=False)


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


def give_back(session: Session, claim: Claim, *, spent: bool = False) -> bool:
    """Not answered, and not for want of trying: the worker stops, or, `spent`, the search has no time left. Then nobody
    takes it again before the coordinator has seen that: the caller rings for it. False where it is not this worker's
    any more.
    """
    held = _held(session, claim)
    if held is None:
        return False
    _, search, probe = held
    _put_back(probe)
    if spent:
        probe.state = ProbeState.DROPPED
        searches.mark_stale(search, now(session))
    return True


def lost(session: Session, claim: Claim, what: str, log: str = "") -> bool:
    """The worker lives, and what it asked the probe with has died: that counts like a worker that vanished. `what`
    tells it in a sentence, and `log` is what the compiler said until then. True where the probe is answered now: the
    caller rings for the search.
    """
    held = _held(session, claim)
    return held is not None and _lose(
        session, *held, f"{MOST_LOSSES} times in a row this ended without an answer: {what}", log
    )


def expire(session: Session, probe_id: str) -> bool:
    """Take it from a worker that has let its lease run out. True where it was the last time: it is answered now.

    A probe that workers die of again and again ends as unresolved, and its job goes on around it.
    """
    known = session.get(Probe, probe_id)
    search = session.get(Search, known.search_id) if known is not None else None
    job = lifecycle.locked(session, search.job_id) if search is not None else None
    # also the row itself: a heartbeat does not lock the job
    probe = session.get(Probe, probe_id, with_for_update=True, populate_existing=True)
    if job is None or search is None or probe is None or probe.state != ProbeState.RUNNING:
        return False
    if probe.lease_until is not None and probe.lease_until > now(session):
        return False
    search = session.get_one(Search, probe.search_id, populate_existing=True)
    what = f"{MOST_LOSSES} workers in a row vanished while they asked this, the last of them {probe.worker}"
    return _lose(session, job, search, probe, what)


def _held(session: Session, claim: Claim) -> tuple[Job, Search, Probe] | None:
    """The job, locked, with search and probe as they are; None where the claim is lost."""
    job = lifecycle.locked(session, claim.job_id)
    if job is None:
        return None
    found = session.execute(_WITH_SEARCH, {"probe": claim.probe_id}, execution_options=_AFRESH).one_or_none()
    if found is None or found[0].state != ProbeState.RUNNING or found[0].claims != claim.number:
        return None
    probe, search = found
    return job, search, probe


def _lose(session: Session, job: Job, search: Search, probe: Probe, what: str, log: str = "") -> bool:
    probe.losses += 1
    if probe.losses < MOST_LOSSES:
        _put_back(probe)
        return False
    verdict = Verdict(status=Status.UNRESOLVED, kind=Kind.CRASH, message=what)
    _answer(session, job, search, probe, Answer(verdict=verdict, log=log), now(session))
    return True


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
_WITH_MODEL = (
    select(Probe, Search, Model.files)
    .join(Search, Search.id == Probe.search_id)
    .join(Job, Job.id == Search.job_id)
    .outerjoin(Model, and_(Model.tenant == Job.tenant, Model.sha256 == Job.model_sha256))
    .where(Probe.id == bindparam("probe"))
)
