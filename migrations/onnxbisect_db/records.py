"""What a search has learnt: for the coordinator that replays it, for reports, and for the page."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Status
from onnxbisect.verdict_json import from_json
from onnxbisect_db import verdicts
from onnxbisect_db.answered import Answered
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Job, Probe, Search
from onnxbisect_db.verdicts import Question

#: Databases bound the length of a list.
_AT_A_TIME = 500


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a search stands: its answers, in the order in which they came, and the questions that workers have in hand,
    units and attempt.
    """

    answers: tuple[Answered, ...]
    in_hand: frozenset[tuple[UnitSet, int]]


def standing(session: Session, search_id: str) -> Standing:
    """As of now, without compilers' logs."""
    found = session.execute(_STANDING, {"search": search_id}).all()
    return Standing(
        answers=tuple(_answered(probe) for probe in found if probe.state == ProbeState.DONE),
        in_hand=frozenset(
            (int(probe.units, 16), probe.attempt) for probe in found if probe.state == ProbeState.RUNNING
        ),
    )


def answered(session: Session, search_id: str) -> tuple[Answered, ...]:
    """All answers of a search, in the order in which they came."""
    return standing(session, search_id).answers


@dataclass(frozen=True, kw_only=True)
class Passed:
    """All units that were in a probe that passed, and the ids of the answers that this was read from."""

    units: UnitSet = 0
    answers: frozenset[str] = frozenset()


def passed(session: Session, search_id: str, before: Passed | None = None) -> Passed:
    """As of now. What was known `before` is not read again: sets of units are long where models are large."""
    mine = (Probe.search_id == search_id, Probe.state == ProbeState.DONE)
    answers = frozenset(session.scalars(select(Probe.id).where(*mine)))
    if before is None or not before.answers <= answers:  # a retry has begun anew
        before = Passed()
    new = sorted(answers - before.answers)
    units = before.units
    for first in range(0, len(new), _AT_A_TIME):
        few = Probe.id.in_(new[first : first + _AT_A_TIME])
        for text in session.scalars(select(Probe.units).where(few, Probe.verdict["status"].as_string() == Status.PASS)):
            units |= int(text, 16)
    return Passed(units=units, answers=answers)


def log(session: Session, probe_id: str, tenant: str) -> str | None:
    """The compiler's log; None where the tenant has no such probe. A cached answer's is in the verdict base."""
    found = session.execute(
        select(Probe.log, Probe.key, Probe.attempt, Search.identity)
        .join(Search, Search.id == Probe.search_id)
        .join(Job, Job.id == Search.job_id)
        .where(Probe.id == probe_id, Job.tenant == tenant)
    ).one_or_none()
    if found is None:
        return None
    text, key, attempt, identity = found
    if text or key is None or identity is None:
        return text
    known = verdicts.get(session, Question(tenant=tenant, identity=identity, key=key, attempt=attempt))
    return "" if known is None else known.log


def _answered(probe: Any) -> Answered:
    return Answered(
        probe_id=probe.id,
        units=int(probe.units, 16),
        attempt=probe.attempt,
        verdict=from_json(probe.verdict),
        why=probe.why,
        round=probe.round,
        key=probe.key or "",
        cached=probe.cached,
        file_sha256=probe.file_sha256,
        engine_seconds=probe.engine_seconds,
    )


# Columns, not rows of the table: a log is long, and there are hundreds of answers.
_STANDING = (
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
