"""Claims of searches: one worker at a time has one, and writes of an earlier holder have no effect.

A worker claims a search and does the work of its stage. Each function that stores a result also releases the search. If
the worker dies, the lease expires, and another worker claims the search under the next epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from onnxbisect.verdict import Status
from onnxbisect_db import culprits, events, leases, lifecycle, locking, notices, trouble
from onnxbisect_db.database import now
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.events import Findings
from onnxbisect_db.states import EventType, Fault, JobState, Stage
from onnxbisect_db.tables import Event, Job, Probe, Search, StoredModel

#: How often the targets of a job begin, in the mean, while its workers differ.
_MOST_BEGINNINGS = 3


@dataclass(frozen=True, kw_only=True)
class ClaimedSearch(leases.Claimed):
    """A claimed search."""

    def __str__(self) -> str:
        return f"search {self.search.id}"

    @property
    def stage(self) -> Stage:
        """The stage to work on."""
        return Stage(self.search.stage)


def claim(session: Session, search_id: str, stage: Stage, *, seconds: float, worker: str = "") -> ClaimedSearch | None:
    """Claim the search, if it is at that stage, free, and not waiting for a retry.

    `search_queue.take` chooses which one.
    """
    found = locking.locked_with(session, search_id)
    if found is None:
        return None
    job, search = found
    at = now(session)
    if search.stage != stage or leases.lasts(search.lease_until, at):
        return None
    if search.lease_until is not None:
        _lose(session, search, "The process that worked on it was gone before it had ended.", at)
    if leases.lasts(search.retry_at, at):
        return None
    lifecycle.start(session, job, at)
    search.state = JobState.RUNNING
    search.started_at = search.started_at or at
    search.worker, search.claimed_at = worker, at
    search.dirty = False
    return ClaimedSearch(
        lease=leases.claim(search, at, seconds=seconds),
        job=job,
        model=session.get_one(StoredModel, (job.tenant, job.model_sha256)),
        search=search,
        alone=search.crashes > 0,
    )


def release(session: Session, claimed: ClaimedSearch) -> None:
    """Release the search; it can be claimed at once if it became dirty since the claim."""
    _, search = lock_claimed(session, claimed)
    search.lease_until = None
    trouble.forget(search)
    if search.dirty:
        notices.notify_of(session, search)


def give_back(session: Session, claimed: ClaimedSearch) -> None:
    """Release unfinished work, which does not count as a failed attempt: the worker stops, or its compiler fails."""
    _, search = lock_claimed(session, claimed)
    _let_go(session, search)


def record_loss(session: Session, claimed: ClaimedSearch, what: str) -> None:
    """Release the search after a failure that says nothing about the model, described by `what`.

    It is retried after increasing delays, the first time at once.
    """
    _, search = lock_claimed(session, claimed)
    _lose(session, search, what, now(session))


def record_crash(session: Session, claimed: ClaimedSearch, what: str) -> None:
    """Release the search after its model process died, described by `what`. It is retried once, and then fails."""
    job, search = lock_claimed(session, claimed)
    at = now(session)
    if trouble.crash(search, what):
        _fail(session, job, search, what, Fault.SERVICE, at)
    else:
        _let_go(session, search)


def mark_dirty(session: Session, search: Search) -> None:
    """Note a change that the coordinator must see, after release if the search is claimed."""
    if not search.dirty:
        search.dirty = True
        notices.notify_of(session, search)


def store_prepared(
    session: Session,
    claimed: ClaimedSearch,
    *,
    identity: str,
    tool: str,
    version: str,
    universe: str,
    units: int,
    graph: str | None = None,
    changeable: bool = False,
) -> None:
    """Store the result of reading the model; probes come next. `changeable`: changed copies of the file are worth
    trying.
    """
    job, search = lock_claimed(session, claimed)
    search.identity, search.tool, search.version = identity, tool, version
    search.universe, search.units, search.graph = universe, units, graph
    again = "file_after" in (search.compiles_after or {})
    if not again:
        search.compiles_after = None if changeable else {}
    _move(session, search, Stage.SEARCH)
    culprits.note_version(session, search, now(session))
    if search.asked_for is None and not again:
        facts = {"search": search.id, "tool": tool, "version": version, "units": units}
        events.tell(session, job, EventType.SEARCH_PREPARED, now(session), **facts)


def await_changes(session: Session, claimed: ClaimedSearch) -> None:
    """The whole model fails: changed copies of its file come next."""
    _, search = lock_claimed(session, claimed)
    _move(session, search, Stage.FILES)


def store_changes(session: Session, claimed: ClaimedSearch, compiles_after: Mapping[str, Any]) -> None:
    """Store the result of changed files (`Search.compiles_after`): the report comes next if one compiles, else the
    parts.

    Their calls count as the search's own.
    """
    _, search = lock_claimed(session, claimed)
    search.compiles_after = dict(compiles_after)
    _take_over_calls(session, search)
    _move(session, search, Stage.REPORT if compiles_after else Stage.SEARCH)


def go_on_in(
    session: Session, claimed: ClaimedSearch, *, onnx: str, request: Mapping[str, Any], file_after: Mapping[str, Any]
) -> None:
    """Begin anew with a changed file, which the compiler refuses for another reason than the model's own.

    `onnx` is the SHA-256 of its stored file, whose data files are the model's, and `file_after` is what was changed.
    The answers so far are about the model's own file: they are dropped, and their calls stay.
    """
    _, search = lock_claimed(session, claimed)
    search.onnx, search.data, search.request = onnx, dict(claimed.data), dict(request)
    search.compiles_after = {"file_after": dict(file_after)}
    _take_over_calls(session, search)
    session.execute(delete(Probe).where(Probe.search_id == search.id))
    _move(session, search, Stage.PREPARE)


def _take_over_calls(session: Session, search: Search) -> None:
    for asked in session.scalars(select(Search).where(Search.asked_for == search.id)):
        search.calls, asked.calls = search.calls + asked.calls, 0


def end_search(session: Session, claimed: ClaimedSearch) -> None:
    """No probe is left, or the budget has ended: the report comes next, but a changed model gets none."""
    job, search = lock_claimed(session, claimed)
    search.expected = 0.0
    if search.asked_for is not None:
        _end(session, job, search, JobState.DONE, "", now(session))
        return
    lifecycle.drop_probes(session, search)
    _move(session, search, Stage.REPORT)


def finish(
    session: Session,
    claimed: ClaimedSearch,
    *,
    verdict: Status,
    report: str,
    files: Mapping[str, str],
    found: Sequence[culprits.FoundCulprit] = (),
    findings: Findings | None = None,
) -> None:
    """Store the report, with these culprits: `report` and the values of `files` are names of stored files.

    `findings` are the report in short.

    A repair, or a search for nodes that must stay precise, follows if the job requests one; otherwise the search ends,
    and with the last one the job.
    """
    job, search = lock_claimed(session, claimed)
    search.verdict = verdict
    search.report, search.files = report, dict(files)
    search.findings = None if findings is None else findings.model_dump(mode="json")
    if job.culprit_id is None:
        culprits.record(session, job, search, found, now(session))
    else:
        culprits.record_recheck(session, job, search, now(session))
    _go_on(session, job, search, now(session))


def end_repair(
    session: Session,
    claimed: ClaimedSearch,
    outcome: Mapping[str, Any],
    files: Mapping[str, str],
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """End the repair: `outcome` is `Search.repair`, `files` go with the report.

    `remedies` are, by identity of culprits, the rules that replaced them.
    """
    job, search = lock_claimed(session, claimed)
    culprits.note_remedies(session, job.tenant, remedies)
    search.files = {**search.files, **files}
    _end_repair(session, job, search, outcome, now(session))


def end_measuring(
    session: Session, claimed: ClaimedSearch, outcome: Mapping[str, Any], files: Mapping[str, str]
) -> None:
    """End the search for nodes that must stay precise: `outcome` is `Search.precision`, `files` go with the report."""
    job, search = lock_claimed(session, claimed)
    search.files = {**search.files, **files}
    _end_precision(session, job, search, outcome, now(session))


def begin_again(session: Session, claimed: leases.Claimed, what: str) -> None:
    """Begin the target anew, because its answers are of a compiler or program that this worker has not, as `what` says.

    As two kinds of workers would undo each other's work, it fails if it has begun a few times already.
    """
    found = locking.locked_with(session, claimed.search.id)
    row = session.get(claimed.lease.table, claimed.lease.row_id, populate_existing=True)
    if found is None or not isinstance(row, Search | Probe) or not leases.is_held(row, claimed.lease):
        raise LostClaimError(f"Another worker has search {claimed.search.id} now, or its job has ended.")
    job, search = found
    if search.asked_for is not None:
        search = session.get_one(Search, search.asked_for, populate_existing=True)
    at = now(session)
    since = (Event.job_id == job.id, Event.created_at >= (job.started_at or at))
    prepared = select(func.count()).select_from(Event).where(*since, Event.type == EventType.SEARCH_PREPARED)
    if session.scalars(prepared).one() < _MOST_BEGINNINGS * len(lifecycle.targets_of(session, job)):
        lifecycle.begin_again(session, search)
    else:
        _fail(session, job, search, what, Fault.SERVICE, at)


def fail(session: Session, claimed: ClaimedSearch, problem: str, fault: Fault = Fault.SERVICE) -> None:
    """End the search with a problem. The job's other targets continue."""
    job, search = lock_claimed(session, claimed)
    _fail(session, job, search, problem, fault, now(session))


def lock_claimed(session: Session, claimed: ClaimedSearch) -> tuple[Job, Search]:
    """The job, locked, and the search; LostClaimError if the claim is lost."""
    found = locking.locked_with(session, claimed.search.id)
    if found is None or not leases.is_held(found[1], claimed.lease):
        raise LostClaimError(f"Another worker has search {claimed.search.id} now, or its job has ended.")
    return found


def _lose(session: Session, search: Search, what: str, at: datetime) -> None:
    trouble.lose(search, what, at)
    _let_go(session, search)


def _let_go(session: Session, search: Search) -> None:
    """Make the search claimable."""
    search.lease_until = None
    search.dirty = False
    mark_dirty(session, search)


def _move(session: Session, search: Search, stage: Stage) -> None:
    search.stage = stage
    trouble.forget(search)
    _let_go(session, search)


def _fail(session: Session, job: Job, search: Search, problem: str, fault: Fault, at: datetime) -> None:
    if search.stage == Stage.FILES:  # its parts can still be searched
        search.compiles_after = {**(search.compiles_after or {}), "problem": problem}
        _move(session, search, Stage.SEARCH)
        return
    if search.stage == Stage.REPAIR:  # its report is kept
        _end_repair(
            session, job, search, {"verdict": None, "changes": 0, "left": 0, "calls": 0, "problem": problem}, at
        )
        return
    if search.stage == Stage.PRECISION:  # so is what came before
        outcome = {"ending": None, "headline": "", "keep": 0, "asks": 0, "problem": problem}
        _end_precision(session, job, search, outcome, at)
        return
    search.fault = fault
    _end(session, job, search, JobState.FAILED, problem, at)


def _go_on(session: Session, job: Job, search: Search, at: datetime) -> None:
    """Move on to the next stage that the job requests and that has no outcome; the search ends if none is left."""
    if job.request.get("repair") is not None and search.repair is None:
        _move(session, search, Stage.REPAIR)
    elif job.request.get("precision") is not None and search.precision is None:
        _move(session, search, Stage.PRECISION)
    else:
        _end(session, job, search, JobState.DONE, "", at)


def _end_repair(session: Session, job: Job, search: Search, outcome: Mapping[str, Any], at: datetime) -> None:
    search.repair = dict(outcome)
    events.tell(session, job, EventType.JOB_REPAIRED, at, search=search.id, target=search.ordinal + 1, **outcome)
    _go_on(session, job, search, at)


def _end_precision(session: Session, job: Job, search: Search, outcome: Mapping[str, Any], at: datetime) -> None:
    search.precision = dict(outcome)
    events.tell(session, job, EventType.JOB_MEASURED, at, search=search.id, target=search.ordinal + 1, **outcome)
    _go_on(session, job, search, at)


def _end(session: Session, job: Job, search: Search, state: JobState, problem: str, at: datetime) -> None:
    lifecycle.drop_probes(session, search)
    search.state, search.stage, search.problem = state, Stage.OVER, problem
    search.lease_until = None
    trouble.forget(search)
    search.ended_at = at
    if search.asked_for is not None:
        mark_dirty(session, session.get_one(Search, search.asked_for, populate_existing=True))
        return
    facts = {"search": search.id, "state": state, "verdict": search.verdict, "problem": problem, "fault": search.fault}
    events.tell(session, job, EventType.SEARCH_ENDED, at, **facts)
    lifecycle.close(session, job, at)
