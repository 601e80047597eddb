"""What tests of the database begin from: a clock, a job, a search that asks."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from onnxbisect.answer import Answer, Ask
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_db import jobs, models, plans, probes, searches
from onnxbisect_db.database import Database
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.probes import Claim, VerdictKey
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Job, KeptVerdict

MODEL = "a" * 64
UNIVERSE = "b" * 64
IDENTITY = "c" * 64
REPORT = "d" * 64
LEASE = 30.0
NPU = "npu"

PASS = Answer(verdict=Verdict(status=Status.PASS, seconds=1.5), log="compiled\n")
FAIL = Answer(
    verdict=Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, fingerprint="no <op>", message="no Sin"),
    file_sha256="f" * 64,
    log="no Sin\n",
)
UNSURE = Answer(verdict=Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT, message="it took too long"))


@dataclass
class Clock:
    """Time as the test has it."""

    at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.at

    def forward(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def asks(units: Iterable[UnitSet], *, speculative: bool = False) -> list[Ask]:
    return [Ask(units=each, attempt=0, why=f"units {each:x}", speculative=speculative) for each in units]


def new_job(database: Database, *backends: str, tenant: str = "", key: str | None = None, **wanted: Any) -> Job:
    """A job on these backends; on one, called NPU, where none is named."""
    targets = tuple(NewTarget(backend=backend) for backend in backends or (NPU,))
    model = wanted.pop("model_sha256", MODEL)

    def make(session: Any) -> Job:
        if models.get(session, model, tenant) is None:
            models.keep(session, tenant=tenant, sha256=model, name="net.onnx", size=10)
        request = NewJob(model_sha256=model, targets=targets, **wanted)
        return jobs.create(session, request, tenant=tenant, idempotency_key=key).job

    return database.run(make)


def take(database: Database, search_id: str, stage: Stage, seconds: float = LEASE) -> ClaimedSearch:
    claimed = database.run(lambda session: searches.claim(session, search_id, stage, seconds=seconds))
    assert claimed is not None
    return claimed


def prepare(
    database: Database,
    search_id: str,
    universe: str = UNIVERSE,
    identity: str = IDENTITY,
    *,
    graph: str | None = None,
    version: str = "1",
) -> None:
    claimed = take(database, search_id, Stage.PREPARE)
    with database.transaction() as session:
        searches.store_prepared(
            session, claimed, identity=identity, tool="t", version=version, universe=universe, units=9, graph=graph
        )


def plan(database: Database, search_id: str, wanted: list[Ask], **found: Any) -> int:
    """One turn of the coordinator, which wants these."""
    claimed = take(database, search_id, Stage.SEARCH)
    with database.transaction() as session:
        new = plans.save(session, claimed, wanted, expected=5.0, culprits=found)
        searches.release(session, claimed)
    return new


def asking(database: Database, units: Iterable[UnitSet] = (1, 2, 3), *backends: str, **wanted: Any) -> Job:
    """A job whose searches ask about these units."""
    job = new_job(database, *backends, **wanted)
    for search in job.searches:
        prepare(database, search.id)
        plan(database, search.id, asks(units))
    return job


def claim(database: Database, backend: str = NPU, worker: str = "w") -> Claim | None:
    request = ClaimRequest(backend=backend, worker=worker, seconds=LEASE)
    return database.run(lambda session: probes.claim(session, request))


def claimed(database: Database, backend: str = NPU, worker: str = "w") -> Claim:
    found = claim(database, backend, worker)
    assert found is not None
    return found


def answer(database: Database, claim: Claim, given: Answer = PASS, key: str | None = None) -> bool:
    def write(session: Session) -> None:
        if key is not None:
            assert probes.dedupe_by_key(session, claim, key).mine
        probes.answer(session, claim, given)

    return counts(database, write)


def kept(session: Session, question: VerdictKey) -> Answer | None:
    """What the verdict base has."""
    row = session.get(KeptVerdict, astuple(question))
    return None if row is None else probes.answer_of(row)


def counts(database: Database, write: Callable[[Session], object]) -> bool:
    """Whether what the holder of a claim writes counts; if not, the claim is lost."""
    try:
        database.run(write)
    except LostClaimError:
        return False
    return True


def end(database: Database, search_id: str, verdict: Status = Status.PASS) -> None:
    """From asking to the report, and over."""
    claimed = take(database, search_id, Stage.SEARCH)
    with database.transaction() as session:
        searches.end_search(session, claimed)
    claimed = take(database, search_id, Stage.REPORT)
    with database.transaction() as session:
        searches.finish(session, claimed, verdict=verdict, report=REPORT, files={})


def at_once(count: int, work: Callable[[int], None]) -> None:
    """`work` in so many threads, begun together; whatever one of them raises, the test raises."""
    start, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:  # handed over
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def read(database: Database, job: Job) -> Job:
    with database.session() as session:
        found = jobs.get(session, job.id, job.tenant)
    assert found is not None
    return found
