"""Reads the probes of a search: all answers for the planner and reports, pages and summaries for people."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, bindparam, func, select
from sqlalchemy.orm import Session

from onnxbisect.json_form import from_json
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_db.answers import AnsweredProbe
from onnxbisect_db.database import Page, page
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Job, KeptVerdict, Probe, Search
from onnxbisect_db.tables.base import constant

#: Most values in one list, which databases limit.
_AT_A_TIME = 500


@dataclass(frozen=True, kw_only=True)
class KnownProbes:
    """The answers of a search in the order of arrival, and its claimed probes by units and attempt."""

    answers: tuple[AnsweredProbe, ...]
    claimed: frozenset[tuple[UnitSet, int]]


def known_probes(session: Session, search_id: str) -> KnownProbes:
    """The current ones, without compilers' logs."""
    found = session.execute(_KNOWN_PROBES, {"search": search_id}).all()
    return KnownProbes(
        answers=tuple(
            AnsweredProbe(
                probe_id=probe.id,
                units=int(probe.units, 16),
                attempt=probe.attempt,
                verdict=from_json(probe.verdict, Verdict),
                why=probe.why,
                round=probe.round,
                key=probe.key or "",
                cached=probe.cached,
                file_sha256=probe.file_sha256,
                engine_seconds=probe.engine_seconds,
            )
            for probe in found
            if probe.state == ProbeState.DONE
        ),
        claimed=frozenset(
            (int(probe.units, 16), probe.attempt) for probe in found if probe.state == ProbeState.RUNNING
        ),
    )


def answered(session: Session, search_id: str) -> tuple[AnsweredProbe, ...]:
    """All answers of a search in the order of arrival."""
    return known_probes(session, search_id).answers


@dataclass(frozen=True, kw_only=True)
class PassedUnits:
    """All units in passing probes, and the ids of the answers used."""

    units: UnitSet = 0
    answers: frozenset[str] = frozenset()


def passed_units(session: Session, search_id: str, before: PassedUnits | None = None) -> PassedUnits:
    """The current ones. What is known from `before` is not read again: unit sets of large models are long."""
    mine = (Probe.search_id == search_id, Probe.state == ProbeState.DONE)
    answers = frozenset(session.scalars(select(Probe.id).where(*mine)))
    if before is None or not before.answers <= answers:  # a retry started over
        before = PassedUnits()
    new = sorted(answers - before.answers)
    units = before.units
    for first in range(0, len(new), _AT_A_TIME):
        few = Probe.id.in_(new[first : first + _AT_A_TIME])
        for text in session.scalars(select(Probe.units).where(few, Probe.verdict["status"].as_string() == Status.PASS)):
            units |= int(text, 16)
    return PassedUnits(units=units, answers=answers)


def log(session: Session, probe_id: str, tenant: str) -> str | None:
    """The compiler's log; None if the tenant has no such probe. For a cached answer, the verdict base has it."""
    mine = _LOGS.where(Probe.id == bindparam("probe"), Job.tenant == bindparam("tenant"))
    found = session.execute(mine, {"probe": probe_id, "tenant": tenant}).one_or_none()
    return None if found is None else found.text


def failure_logs(session: Session, search_id: str) -> dict[str, str]:
    """By probe, the compiler's logs of failures with a file: a culprit's log goes with its file."""
    found = session.execute(_FAILURE_LOGS, {"search": search_id})
    return {row.id: row.text for row in found}


def list_page(
    session: Session,
    job: Job,
    *,
    search_id: str | None = None,
    state: ProbeState | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Page[Probe, str]:
    """The probes of a job's targets, oldest first, after the one with id `after`; not those of their repairs."""
    mine = (Search.job_id == job.id, Search.asked_for.is_(None))
    found = select(Probe).join(Search, Search.id == Probe.search_id).where(*mine)
    if search_id is not None:
        found = found.where(Probe.search_id == search_id)
    if state is not None:
        found = found.where(Probe.state == state)
    if after is not None:
        found = found.where(Probe.id > after)
    return page(session, found.order_by(Probe.id), lambda probe: probe.id, limit=limit)


@dataclass(frozen=True, kw_only=True)
class Recent:
    """The state of a search: claimed probes, longest first; latest answers, newest first; the number of waiting probes.

    Also when the first probe was started.
    """

    claimed: tuple[Probe, ...]
    answers: tuple[Probe, ...]
    waiting: int
    since: datetime | None


def recent(session: Session, search_id: str, *, answers: int) -> Recent:
    """With at most so many answers."""
    mine = select(Probe).where(Probe.search_id == search_id)
    running = mine.where(Probe.state == ProbeState.RUNNING).order_by(Probe.started_at, Probe.id)
    done = mine.where(Probe.state == ProbeState.DONE).order_by(Probe.ended_at.desc(), Probe.id.desc())
    queued = func.count().filter(Probe.state == ProbeState.QUEUED)
    waiting, since = session.execute(
        select(queued, func.min(Probe.started_at)).where(Probe.search_id == search_id)
    ).one()
    return Recent(
        claimed=tuple(session.scalars(running)),
        answers=tuple(session.scalars(done.limit(answers))),
        waiting=waiting,
        since=since,
    )


@dataclass(frozen=True, kw_only=True)
class ProbeSummary:
    """A probe without its log and its tables, which can be a thousand times as long."""

    id: str
    units: UnitSet
    attempt: int
    why: str
    state: ProbeState
    speculative: bool
    round: int
    worker: str
    cached: bool
    status: Status | None
    kind: Kind | None
    message: str
    seconds: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def was_started(self) -> bool:
        """Whether a worker claimed it or its answer was known. False for waiting and dropped ones."""
        return self.state in (ProbeState.RUNNING, ProbeState.DONE)


def summaries(session: Session, search_id: str) -> list[ProbeSummary]:
    """All probes of a search in the order of their starts, then those not started.

    Answers known from the beginning have no start: they are placed at the probe's creation, larger ones first.
    """
    probes = []
    for row in session.execute(_SUMMARIES, {"search": search_id}).mappings():
        typed = {
            "units": int(row["units"], 16),
            "state": ProbeState(row["state"]),
            "status": Status(row["status"]) if row["status"] else None,
            "kind": Kind(row["kind"]) if row["kind"] else None,
            "message": row["message"] or "",
        }
        probes.append(ProbeSummary(**{**row, **typed}))
    return sorted(
        probes, key=lambda it: (not it.was_started, it.started_at or it.created_at, -it.units.bit_count(), it.id)
    )


# Single columns, because logs are long and there are hundreds of answers.
_KNOWN_PROBES = (
    select(
        Probe.id,
        Probe.state,
        Probe.units,
        Probe.attempt,
        Probe.verdict,
        Probe.why,
        Probe.round,
        Probe.key,
        Probe.cached,
        Probe.file_sha256,
        Probe.engine_seconds,
    )
    .where(Probe.search_id == bindparam("search"), Probe.state.in_((ProbeState.DONE, ProbeState.RUNNING)))
    .order_by(Probe.ended_at, Probe.id)
)
_LOGS = (
    select(Probe.id, func.coalesce(func.nullif(Probe.log, ""), KeptVerdict.log, "").label("text"))
    .join(Search, Search.id == Probe.search_id)
    .join(Job, Job.id == Search.job_id)
    .outerjoin(
        KeptVerdict,
        and_(
            *(KeptVerdict.tenant == Job.tenant, KeptVerdict.identity == Search.identity),
            *(KeptVerdict.key == Probe.key, KeptVerdict.attempt == Probe.attempt),
        ),
    )
)
_FAILURE_LOGS = _LOGS.where(
    *(Probe.search_id == bindparam("search"), Probe.file_sha256 != ""),
    Probe.verdict["status"].as_string() == constant(Status.FAIL),
)
_SUMMARIES = select(
    *(Probe.id, Probe.units, Probe.attempt, Probe.why, Probe.state, Probe.speculative, Probe.round, Probe.worker),
    *(Probe.cached, Probe.created_at, Probe.started_at, Probe.ended_at),
    *(Probe.verdict[name].as_string().label(name) for name in ("status", "kind", "message")),
    Probe.verdict["seconds"].as_float().label("seconds"),
).where(Probe.search_id == bindparam("search"))
