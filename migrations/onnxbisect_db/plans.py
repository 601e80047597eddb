"""What a coordinator comes to: the questions worth asking now, or those that a like search has asked before."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, load_only

from onnxbisect.answer import Ask
from onnxbisect.verdict_json import from_json
from onnxbisect_db import events, notices, searches
from onnxbisect_db.database import now
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, Probe, Search

#: What a plan is compared with: hundreds of verdicts need not be read for that.
_WITHOUT_ANSWER = load_only(
    Probe.units_sha256, Probe.attempt, Probe.state, Probe.rank, Probe.speculative, raiseload=True
)
_OF_SEARCH = select(Probe).where(Probe.search_id == bindparam("search")).options(_WITHOUT_ANSWER)

#: SHA-256 of the units, and the attempt.
_Question = tuple[str, int]


def save(
    session: Session,
    claimed: ClaimedSearch,
    asks: Sequence[Ask],
    *,
    expected: float,
    culprits: Mapping[str, Mapping[str, Any]],
) -> int:
    """Make the plan what is queued: new questions come in, those that it has no more go, all get their rank.

    Questions that a worker asks at this moment are left to it. `culprits` are those that stand now, each under a name
    that it keeps. Returns how many questions are new. LostClaimError where the search is not this holder's any more.
    """
    job, search = searches.held(session, claimed)
    at = now(session)
    known = _asked(session, search.id)
    unwanted = {question for question, probe in known.items() if probe.state == ProbeState.QUEUED}
    new = 0
    for rank, ask in enumerate(asks):
        units = f"{ask.units:x}"
        question = (hashlib.sha256(units.encode()).hexdigest(), ask.attempt)
        unwanted.discard(question)
        probe = known.get(question)
        if probe is None:
            probe = Probe(
                search_id=search.id,
                units=units,
                units_sha256=question[0],
                attempt=ask.attempt,
                why=ask.why,
                created_at=at,
            )
            known[question] = probe
            session.add(probe)
            new += 1
        elif probe.state == ProbeState.DROPPED:
            probe.state = ProbeState.QUEUED
            new += 1
        probe.rank, probe.speculative = rank, ask.speculative
    for question in unwanted:
        known[question].state = ProbeState.DROPPED
    if new:
        notices.notify(session, notices.backend(search.backend))
    search.expected = expected
    for name in culprits.keys() - search.found.keys() if search.asked_for is None else ():
        facts = {"search": search.id, "name": name, "culprit": dict(culprits[name])}
        events.tell(session, job, EventType.CULPRIT_FOUND, at, **facts)
    search.found = {name: dict(culprit) for name, culprit in culprits.items()}
    return new


def recall(session: Session, claimed: ClaimedSearch, *, without: str = "") -> int:
    """Take over what the newest like search of the tenant asked: the same units of the same model, the same target.

    With several workers the order of answers steers a search, so a second one starts from all that the first one
    learnt and asks little or nothing. An unresolved answer is left behind, with what was asked of its units after it.
    Probes that were asked for the reason `without` stay where they are. Returns how many answers came.
    """
    job, search = searches.held(session, claimed)
    at = now(session)
    asked = select(Probe.id).where(Probe.search_id == Search.id, Probe.state == ProbeState.DONE).exists()
    like = (Search.universe == search.universe, Search.identity == search.identity, Job.tenant == job.tenant)
    earlier = select(Search.id).join(Job, Job.id == Search.job_id).where(*like, Search.id != search.id, asked)
    newest = session.scalars(earlier.order_by(Search.id.desc()).limit(1)).one_or_none()
    if newest is None:
        return 0
    have = set(_asked(session, search.id))
    taken = 0
    answered = select(Probe).where(Probe.search_id == newest, Probe.state == ProbeState.DONE, Probe.why != without)
    for probe in session.scalars(answered.order_by(Probe.attempt)):
        question, before = (probe.units_sha256, probe.attempt), (probe.units_sha256, probe.attempt - 1)
        final = probe.verdict is not None and from_json(probe.verdict).final
        if question in have or not final or (probe.attempt > 0 and before not in have):
            continue
        have.add(question)
        session.add(_recalled(probe, search, at))
        taken += 1
    return taken


def _asked(session: Session, search_id: str) -> dict[_Question, Probe]:
    # as they are now that the job is locked, not as this transaction may have seen them before
    found = session.scalars(_OF_SEARCH, {"search": search_id}, execution_options={"populate_existing": True})
    return {(probe.units_sha256, probe.attempt): probe for probe in found}


def _recalled(probe: Probe, search: Search, at: datetime) -> Probe:
    return Probe(
        search_id=search.id,
        units=probe.units,
        units_sha256=probe.units_sha256,
        attempt=probe.attempt,
        why=probe.why,
        state=ProbeState.DONE,
        key=probe.key,
        verdict=probe.verdict,
        file_sha256=probe.file_sha256,
        cached=True,
        created_at=at,
        ended_at=at,
    )
