"""Avoids compiling the same piece twice: looks up the key of a cut probe among kept verdicts and probes in flight."""

import hashlib
from dataclasses import asdict, dataclass

from sqlalchemy import Select, and_, bindparam, func, select, update
from sqlalchemy.orm import Session, aliased

from onnxbisect.answer import Answer
from onnxbisect_db import locking, probes, verdicts
from onnxbisect_db.claims import Claim
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Job, KeptVerdict, Probe, Search
from onnxbisect_db.verdicts import VerdictKey


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
    _lock_key(session, question)
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
        probes.give_back(session, claim, behind=duplicate)
        return Deduplicated(mine=False)
    return Deduplicated(mine=mine, known=None if known is None else verdicts.answer_of(known))


def _lock_key(session: Session, question: VerdictKey) -> None:
    """Serialise transactions for the same key; taken before all other locks. SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256(repr(question).encode()).digest()
        session.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], "big", signed=True))))


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


_MINE = (
    Probe.id == bindparam("probe"),
    Probe.epoch == bindparam("my_epoch"),
    Probe.state == ProbeState.RUNNING,
)
_KNOWN = _known()
_NAME = update(Probe).where(*_MINE).values(key=bindparam("key")).returning(Probe.id)
