"""A long queue: what taking a probe from it costs, and saving a plan."""

import time
from dataclasses import dataclass
from functools import partial

from sqlalchemy import text
from sqlalchemy.orm import Session

from installation import Installed
from onnxbisect.answer import Answer, Ask
from onnxbisect.verdict import Status, Verdict
from onnxbisect_db import jobs, models, plans, probes, searches
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.probes import claim as take
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.reconcile import reconcile
from onnxbisect_db.states import Stage

_LEASE = 600.0
_PASS = Answer(verdict=Verdict(status=Status.PASS), log="compiled\n")


@dataclass(frozen=True, kw_only=True)
class Queued:
    """Seconds each: taking a probe, answering it, a plan whose questions are new, the same plan again, and a round of
    the reconciler.
    """

    probes: int
    jobs: int
    claims: list[float]
    answers: list[float]
    new_plans: list[float]
    same_plans: list[float]
    reconcile: float

    def claim(self, share: float) -> float:
        """Milliseconds within which so large a share was taken."""
        return _at(self.claims, share)

    def answer(self, share: float) -> float:
        """Milliseconds within which so large a share was answered."""
        return _at(self.answers, share)


def measure(here: Installed, name: str, count: int, each: int, claims: int) -> Queued:
    """Jobs with `each` questions, `count` together, on a queue of their own; then some are taken and answered."""
    database = here.service.database
    asks = [Ask(units=(1 << 200) + number, attempt=0, why="a piece") for number in range(each)]
    new, same = [], []
    for number in range(count // each):
        search_id = _prepared(here, name, number)
        new.append(_planned(here, search_id, asks))
        if number < 5:
            same.append(_planned(here, search_id, asks))
    with database.transaction() as session:
        session.execute(text("ANALYZE"))  # what autovacuum does a minute later
    request = ClaimRequest(backend=name, worker="benchmark", seconds=_LEASE)
    took, answered = [], []
    for _ in range(claims):
        began = time.monotonic()
        claim = database.run(lambda session: take(session, request))
        took.append(time.monotonic() - began)
        assert claim is not None
        began = time.monotonic()
        database.run(partial(probes.answer, claim=claim, given=_PASS))
        answered.append(time.monotonic() - began)
    began = time.monotonic()
    reconcile(database, "benchmark")
    return Queued(
        probes=count,
        jobs=count // each,
        claims=took,
        answers=answered,
        new_plans=new,
        same_plans=same,
        reconcile=time.monotonic() - began,
    )


def _prepared(here: Installed, name: str, number: int) -> str:
    database, digest = here.service.database, "a" * 64

    def make(session: Session) -> str:
        models.keep(session, tenant="", sha256=digest, name="net.onnx", size=1)
        wanted = NewJob(model_sha256=digest, targets=(NewTarget(backend=name),))
        return jobs.create(session, wanted, tenant="").job.searches[0].id

    search_id = database.run(make)
    claimed = database.run(lambda session: searches.claim(session, search_id, Stage.PREPARE, seconds=_LEASE))
    assert claimed is not None
    with database.transaction() as session:
        searches.store_prepared(
            session, claimed, identity=f"{number:064x}", tool="t", version="1", universe="b" * 64, units=200
        )
    return search_id


def _planned(here: Installed, search_id: str, asks: list[Ask]) -> float:
    database = here.service.database
    claimed = database.run(lambda session: searches.claim(session, search_id, Stage.SEARCH, seconds=_LEASE))
    assert claimed is not None

    def save(session: Session) -> None:
        plans.save(session, claimed, asks, expected=1.0, culprits={})
        searches.release(session, claimed)

    began = time.monotonic()
    database.run(save)
    return time.monotonic() - began


def _at(seconds: list[float], share: float) -> float:
    ordered = sorted(seconds)
    return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]
