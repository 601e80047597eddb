"""A probe gets its name: once it is cut its key is known, and by the key whether anybody has asked the same before."""

import hashlib
from dataclasses import asdict, dataclass

from sqlalchemy import Select, and_, bindparam, func, select, update
from sqlalchemy.orm import Session, aliased

from onnxbisect.answer import Answer
from onnxbisect_db import locking, probes, verdicts
from onnxbisect_db.claims import Claim
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Job, KeptVerdict, Probe, Search
from onnxbisect_db.verdicts import Question


@dataclass(frozen=True, kw_only=True)
class Named:
    """What to do with a probe whose key is known: answer with what is `known`, or compile, or (`mine` is False) take
    another one.
    """

    mine: bool
    known: Answer | None = None


def named(session: Session, claim: Claim, key: str) -> Named:
    """The probe is cut and this is its key: look whether it was answered before, or is being asked elsewhere.

    In that case it goes back to the queue, where nobody takes it until the other one is done.
    """
    question = claim.question(key)
    _wait_for_alike(session, question)
    claimed = {"probe": claim.probe.id, "my_epoch": claim.lease.epoch}
    found = session.execute(_KNOWN, {**claimed, **asdict(question)}).one_or_none()
    if found is None:
        return Named(mine=False)
    known, twin = found
    waits = known is None and twin is not None
    if waits:
        locking.locked(session, claim.job.id)  # before the probe's row, as everybody does
    # else without: of a job's probes nobody reads the key but who comes here with the same one
    mine = session.execute(_NAME, {**claimed, "key": key}).one_or_none() is not None
    if waits:
        probes.give_back(session, claim, behind=twin)
        return Named(mine=False)
    return Named(mine=mine, known=None if known is None else verdicts.answer_of(known))


def _wait_for_alike(session: Session, question: Question) -> None:
    """Of two probes that come at once with the same question only one goes on, and the other waits here until that
    transaction has ended. It comes before all other locks. SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256(repr(question).encode()).digest()
        session.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], "big", signed=True))))


def _known() -> Select[KeptVerdict, str]:
    """What is kept under the key, and another probe that is asking the same; no row where the claim is lost."""
    same = and_(
        KeptVerdict.tenant == bindparam("tenant"),
        KeptVerdict.identity == bindparam("identity"),
        KeptVerdict.key == bindparam("key"),
        KeptVerdict.attempt == bindparam("attempt"),
    )
    other = aliased(Probe)
    twin = (
        select(other.id)
        .join(Search, Search.id == other.search_id)
        .join(Job, Job.id == Search.job_id)
        .where(other.key == bindparam("key"), other.attempt == bindparam("attempt"), other.state == ProbeState.RUNNING)
        .where(Search.identity == bindparam("identity"), Job.tenant == bindparam("tenant"), other.id != Probe.id)
        .limit(1)
    )
    return select(KeptVerdict, twin.scalar_subquery()).select_from(Probe).outerjoin(KeptVerdict, same).where(*_MINE)


_MINE = (
    Probe.id == bindparam("probe"),
    Probe.epoch == bindparam("my_epoch"),
    Probe.state == ProbeState.RUNNING,
)
_KNOWN = _known()
_NAME = update(Probe).where(*_MINE).values(key=bindparam("key")).returning(Probe.id)
