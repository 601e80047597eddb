"""Stores a coordinator's plan: the probes to compile now, or those of an equal earlier search."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, load_only

from onnxbisect.answer import Ask
from onnxbisect.json_form import from_json
from onnxbisect.verdict import Verdict
from onnxbisect_db import events, notices, searches
from onnxbisect_db.database import now
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import EventType, ProbeState
from onnxbisect_db.tables import Job, Probe, Search

#: The columns that a plan is compared with, without hundreds of verdicts.
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
    """Make the queue equal to the plan: add new probes, drop removed ones, and rank all.

    Claimed probes stay with their workers. `culprits` are the current ones, each under a stable name. Returns the
    number of new probes. LostClaimError if the claim is lost.
    """
    job, search = searches.lock_claimed(session, claimed)
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


def recall(session: Session, claimed: ClaimedSearch, *, universe: str, identity: str, whole: str, without: str) -> int:
    """Copy the answers of the tenant's newest equal search: same model and target, same units.

    With several workers, the order of answers steers a search, so a second one starts with all that the first one
    learnt and compiles little or nothing. Unresolved answers, and later ones on the same units, are left out, and so
    are probes asked for the reason `without`, and the `whole` model, whose answer is about its file. Returns the number
    of answers.
    """
    job, search = searches.lock_claimed(session, claimed)
    at = now(session)
    asked = select(Probe.id).where(Probe.search_id == Search.id, Probe.state == ProbeState.DONE).exists()
    like = (Search.universe == universe, Search.identity == identity, Job.tenant == job.tenant)
    earlier = select(Search.id).join(Job, Job.id == Search.job_id).where(*like, Search.id != search.id, asked)
    newest = session.scalars(earlier.order_by(Search.id.desc()).limit(1)).one_or_none()
    if newest is None:
        return 0
    have = set(_asked(session, search.id))
    taken = 0
    answered = select(Probe).where(Probe.search_id == newest, Probe.state == ProbeState.DONE, Probe.why != without)
    for probe in session.scalars(answered.order_by(Probe.attempt)):
        question, before = (probe.units_sha256, probe.attempt), (probe.units_sha256, probe.attempt - 1)
        final = probe.verdict is not None and from_json(probe.verdict, Verdict).final
        if probe.units == whole or question in have or not final or (probe.attempt > 0 and before not in have):
            continue
        have.add(question)
        copy = Probe(
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
        session.add(copy)
        taken += 1
    return taken


def _asked(session: Session, search_id: str) -> dict[_Question, Probe]:
    # refreshed under the job's lock, because this transaction may have read them before
    found = session.scalars(_OF_SEARCH, {"search": search_id}, execution_options={"populate_existing": True})
    return {(probe.units_sha256, probe.attempt): probe for probe in found}
