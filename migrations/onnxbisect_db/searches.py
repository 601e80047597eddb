"""The turns of a search: one task at a time has it, and what a lost one writes changes nothing.

A task is rung with the search's id, claims a turn, does the work of the stage, and lets go. In between it may be lost;
then its lease runs out, the reconciler rings again, and the next turn's number is higher.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import Session, aliased

from onnxbisect.verdict import Status
from onnxbisect_db import bells, events, leases, lifecycle, locking, trouble
from onnxbisect_db.database import now
from onnxbisect_db.errors import LostTurnError
from onnxbisect_db.states import EventType, Fault, JobState, ProbeState, Stage
from onnxbisect_db.tables import Job, Probe, Search

_Moment = datetime | ColumnElement[datetime]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A search in somebody's hands, with what is needed to work on it. `number` is the fence."""

    search_id: str
    number: int
    stage: Stage
    job_id: str
    tenant: str
    model_sha256: str
    model_name: str
    request: Mapping[str, Any]
    backend: str
    options: Mapping[str, Any]
    identity: str | None
    universe: str | None
    #: Of a changed model that a repair asks about: the search of the target, the ONNX file and its external data.
    asked_for: str | None
    onnx: str | None
    data: Mapping[str, str] | None
    started_at: datetime
    #: Whether it is tried once more since a process died of it: in a new process.
    alone: bool


def claim(session: Session, search_id: str, stage: Stage, *, seconds: float, worker: str = "") -> Turn | None:
    """Take the search for so many seconds, if it is at that stage, nobody has it, and it is not to be tried again only
    later. `turns.take` says which one.
    """
    found = locking.locked_with(session, search_id)
    if found is None:
        return None
    job, search = found
    at = now(session)
    if search.stage != stage or leases.lasts(search.lease_until, at):
        return None
    if search.lease_until is not None:
        _lose(search, "The process that worked on it was gone before it had ended.", at)
    if leases.lasts(search.retry_at, at):
        return None
    lifecycle.start(session, job, at)
    search.state = JobState.RUNNING
    search.started_at = search.started_at or at
    search.turn += 1
    search.lease_until = at + timedelta(seconds=seconds)
    search.worker, search.claimed_at = worker, at
    search.stale = False
    bells.heeded(search)
    return Turn(
        search_id=search.id,
        number=search.turn,
        stage=stage,
        job_id=job.id,
        tenant=job.tenant,
        model_sha256=job.model_sha256,
        model_name=job.model_name,
        request=job.request if search.request is None else search.request,
        backend=search.backend,
        options=search.options,
        identity=search.identity,
        universe=search.universe,
        asked_for=search.asked_for,
        onnx=search.onnx,
        data=search.data,
        started_at=search.started_at,
        alone=search.crashes > 0,
    )


def wants_a_turn(at: _Moment, far: _Moment) -> ColumnElement[bool]:
    """Searches that want a turn: whose holder is lost, or that nobody holds and for which something has changed, or
    nobody is left to change anything; not those that are tried again only later. Whatever ends after `far` has ended
    (see `leases`).
    """
    asked = (ProbeState.QUEUED, ProbeState.RUNNING)
    open_probe = select(Probe.id).where(Probe.search_id == Search.id, Probe.state.in_(asked))
    changed_model = aliased(Search)
    open_search = select(changed_model.id).where(
        changed_model.asked_for == Search.id, changed_model.stage != Stage.OVER
    )
    waits = or_(open_probe.exists(), open_search.exists())
    lost = or_(Search.lease_until <= at, Search.lease_until > far)
    changed = and_(Search.lease_until.is_(None), or_(Search.stale, ~waits))
    return and_(or_(Search.retry_at.is_(None), Search.retry_at <= at, Search.retry_at > far), or_(lost, changed))


def backend_of(session: Session, search_id: str) -> str | None:
    """None where there is no such search, or not any more."""
    return session.scalars(select(Search.backend).where(Search.id == search_id)).one_or_none()


def renew(session: Session, turn: Turn, *, seconds: float) -> bool:
    """Hold it for longer. False where it is lost, or nobody wants it any more: stop."""
    until = now(session) + timedelta(seconds=seconds)
    held = (Search.id == turn.search_id, Search.turn == turn.number, Search.lease_until.is_not(None))
    renewed = update(Search).where(*held).values(lease_until=until).returning(Search.id)
    return session.scalars(renewed).one_or_none() is not None


def wanted(session: Session, turn: Turn) -> bool:
    """What `renew` returns, for the price of a read."""
    held = (Search.id == turn.search_id, Search.turn == turn.number, Search.lease_until.is_not(None))
    return session.scalars(select(Search.id).where(*held)).one_or_none() is not None


def release(session: Session, turn: Turn) -> bool:
    """Let go of it. True where something has changed since it was claimed: the caller rings for it again."""
    _, search = held(session, turn)
    search.lease_until = None
    trouble.forget(search)
    if search.stale:
        bells.rung(search, now(session))
    return search.stale


def lost(session: Session, turn: Turn, what: str) -> bool:
    """Something was in the way that says nothing about the model, as `what` tells in a sentence: it is let go of, and
    tried again after longer and longer pauses. True the first time: the caller rings for it at once.
    """
    _, search = held(session, turn)
    return _lose(search, what, now(session))


def crashed(session: Session, turn: Turn, what: str) -> bool:
    """The process died of it that has the model, as `what` tells in a sentence. True the first time: it is let go of,
    and the caller rings for it. The second time it fails.
    """
    job, search = held(session, turn)
    at = now(session)
    if trouble.crash(search, what):
        _fail(session, job, search, what, Fault.SERVICE, at)
        return False
    _let_go(search, at)
    return True


def mark_stale(search: Search, at: datetime) -> bool:
    """Something has changed that the coordinator must see. True where the caller rings for it: nobody else has since
    the last turn, and nobody has the search in hand, who would see it when he lets go of it.
    """
    if search.stale:
        return False
    search.stale = True
    bells.heeded(search)
    bells.rung(search, at)
    return not leases.lasts(search.lease_until, at)


def prepared(
    session: Session,
    turn: Turn,
    *,
    identity: str,
    tool: str,
    version: str,
    universe: str,
    units: int,
    graph: str | None = None,
) -> None:
    """The model was read for the target: on to asking. The caller releases it and rings for it."""
    job, search = held(session, turn)
    at = now(session)
    search.identity, search.tool, search.version = identity, tool, version
    search.universe, search.units, search.graph = universe, units, graph
    _move(search, Stage.SEARCH, at)
    if search.asked_for is None:
        facts = {"search": search.id, "tool": tool, "version": version, "units": units}
        events.tell(session, job, EventType.SEARCH_PREPARED, at, **facts)


def searched(session: Session, turn: Turn) -> None:
    """There is nothing left to ask, or the budget has ended: on to the report."""
    _, search = held(session, turn)
    lifecycle.drop_probes(session, search)
    search.expected = 0.0
    _move(search, Stage.REPORT, now(session))


def finish(session: Session, turn: Turn, *, verdict: Status, report: str, files: Mapping[str, str]) -> bool:
    """The report is written: `report` and the values of `files` name stored files. The last search ends the job.

    True where a repair follows, for which the caller rings.
    """
    job, search = held(session, turn)
    search.verdict = verdict
    search.report, search.files = report, dict(files)
    if job.request.get("repair") is not None:
        _move(search, Stage.REPAIR, now(session))
        return release(session, turn)
    _end(session, job, search, JobState.DONE, "", now(session))
    return False


def answered(session: Session, turn: Turn) -> str:
    """There is nothing left to ask of a changed model: its answers are for the repair. Returns the search that asked,
    for which the caller rings.
    """
    job, search = held(session, turn)
    assert search.asked_for is not None  # noqa: S101 - targets have reports
    _end(session, job, search, JobState.DONE, "", now(session))
    return search.asked_for


def repaired(session: Session, turn: Turn, outcome: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """The repair has ended: `outcome` is `Search.repair`, and `files` go with the report."""
    job, search = held(session, turn)
    search.files = {**search.files, **files}
    _end_repair(session, job, search, outcome, now(session))


def fail(session: Session, turn: Turn, problem: str, fault: Fault = Fault.SERVICE) -> None:
    """It cannot be gone on with. The job's other targets go on."""
    job, search = held(session, turn)
    _fail(session, job, search, problem, fault, now(session))


def held(session: Session, turn: Turn) -> tuple[Job, Search]:
    """The job, locked, and the search as this turn's holder has it; LostTurnError where it does not any more."""
    found = locking.locked_with(session, turn.search_id)
    if found is None or found[1].turn != turn.number or found[1].lease_until is None:
        raise LostTurnError(f"Somebody else has search {turn.search_id} now, or its job has ended.")
    return found


def _lose(search: Search, what: str, at: datetime) -> bool:
    """Whether it may be tried again at once."""
    at_once = trouble.lose(search, what, at)
    _let_go(search, at)
    if not at_once:
        search.ring_at = search.retry_at
    return at_once


def _let_go(search: Search, at: datetime) -> None:
    """Somebody is to take it again, and is rung for."""
    search.lease_until = None
    search.stale = True
    bells.heeded(search)
    bells.rung(search, at)


def _move(search: Search, stage: Stage, at: datetime) -> None:
    search.stage = stage
    search.stale = False
    mark_stale(search, at)


def _fail(session: Session, job: Job, search: Search, problem: str, fault: Fault, at: datetime) -> None:
    if search.stage == Stage.REPAIR:  # its report stands
        _end_repair(
            session, job, search, {"verdict": None, "changes": 0, "left": 0, "calls": 0, "problem": problem}, at
        )
        return
    search.fault = fault
    _end(session, job, search, JobState.FAILED, problem, at)


def _end_repair(session: Session, job: Job, search: Search, outcome: Mapping[str, Any], at: datetime) -> None:
    search.repair = dict(outcome)
    events.tell(session, job, EventType.JOB_REPAIRED, at, search=search.id, target=search.ordinal + 1, **outcome)
    _end(session, job, search, JobState.DONE, "", at)


def _end(session: Session, job: Job, search: Search, state: JobState, problem: str, at: datetime) -> None:
    lifecycle.drop_probes(session, search)
    search.state, search.stage, search.problem = state, Stage.OVER, problem
    search.lease_until = None
    trouble.forget(search)
    search.ended_at = at
    if search.asked_for is not None:
        mark_stale(session.get_one(Search, search.asked_for, populate_existing=True), at)
        return
    facts = {"search": search.id, "state": state, "verdict": search.verdict, "problem": problem, "fault": search.fault}
    events.tell(session, job, EventType.SEARCH_ENDED, at, **facts)
    lifecycle.close(session, job, at)
