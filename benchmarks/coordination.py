"""What one run of the coordinator costs, by the number of nodes and of answers that it sees."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from sqlalchemy import select
from sqlalchemy.orm import Session

import generate
import simulated
from generate import Generated
from installation import Installed
from onnxbisect.answer import Ask
from onnxbisect.diagnosis import Target
from onnxbisect.json_form import to_json
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet
from onnxbisect.verdict import Verdict
from onnxbisect_backends.contract import Description
from onnxbisect_db import jobs, models, probe_queries, searches, workers
from onnxbisect_db.database import now
from onnxbisect_db.jobs import NewJob, NewTarget
from onnxbisect_db.states import ProbeState, Stage
from onnxbisect_db.tables import Probe, Search
from onnxbisect_db.workers import Presence
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.claiming import work_on
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.model_processes.pool import ModelPool
from onnxbisect_worker.model_requests.protocol import Prepared
from simulated import Log

_BACKEND = "simulated"
_LEASE = 600.0
_HANDS = 8
#: Seconds of each compile: coordinators plan nothing ahead for quick compilers.
_COMPILE = 1.0
#: How long the way to a number of answers may take.
_PATIENCE = 40.0


@dataclass(frozen=True, kw_only=True)
class Coordination:
    """Milliseconds of one run with so many answers: all of it, and of that reading the answers, and the planner."""

    nodes: int
    probes: int
    run: float
    read: float
    plan: float
    #: What the planner takes when others want all free slots, so that it need not speculate.
    alone: float


def measure(here: Installed, nodes: int, counts: Sequence[int], times: int) -> Iterator[Coordination]:
    """A search that is asked on with eight workers; measured where it has that many answers, unless the search ends
    before, or is slow to come there.
    """
    # Refused are so many that the search goes on for long enough.
    generated = generate.singles(nodes, m=nodes // 2, k=min(nodes // 10, 100), seed=0)
    context = WorkerContext(
        service=here.service, pool=ModelPool(here.service.settings, here.service.files), worker="benchmark"
    )
    search_id = _asking(here, generated)
    asked: list[tuple[Ask, Verdict]] = []
    verdicts: dict[UnitSet, list[Verdict]] = {}
    compiler = simulated.compiler_of(generated, Log.OPAQUE)
    stored, give_up = 0, time.monotonic() + _PATIENCE
    for count in counts:
        while len(asked) < count:
            step = plan(generated.universe, verdicts, 32)
            if not step.asks or time.monotonic() > give_up:
                return
            for ask in step.asks[: count - len(asked)]:
                verdict = compiler(ask.units)
                verdicts.setdefault(ask.units, []).append(verdict)
                asked.append((ask, verdict))
        _answered(here, search_id, asked[stored:])
        stored = len(asked)
        yield _measured(here, context, search_id, generated, verdicts, times)


def _measured(
    here: Installed,
    context: WorkerContext,
    search_id: str,
    generated: Generated,
    verdicts: dict[UnitSet, list[Verdict]],
    times: int,
) -> Coordination:
    _coordinate(here, context, search_id)  # what follows finds its questions queued already, as in most runs
    runs, reads, plans, alone = [], [], [], []
    for _ in range(times):
        began = time.process_time()
        _coordinate(here, context, search_id)
        runs.append(time.process_time() - began)
        began = time.process_time()
        with here.service.database.session() as session:
            answers = probe_queries.answered(session, search_id)
        reads.append(time.process_time() - began)
        began = time.process_time()
        plan(generated.universe, verdicts, _HANDS)
        plans.append(time.process_time() - began)
        began = time.process_time()
        plan(generated.universe, verdicts)
        alone.append(time.process_time() - began)
    return Coordination(
        nodes=len(generated.universe),
        probes=len(answers),
        run=1000 * min(runs),
        read=1000 * min(reads),
        plan=1000 * min(plans),
        alone=1000 * min(alone),
    )


def _coordinate(here: Installed, context: WorkerContext, search_id: str) -> None:
    claimed = here.service.database.run(
        lambda session: searches.claim(session, search_id, Stage.SEARCH, seconds=_LEASE, worker=context.worker)
    )
    assert claimed is not None
    work_on(context, claimed)


def _asking(here: Installed, generated: Generated) -> str:
    """A search that is prepared, of a worker with eight slots."""
    prepared = Prepared(
        target=Target(backend=_BACKEND, tool="simulated", version="1", options={}),
        description=Description(tool="simulated", version="1"),
        universe=generated.universe,
        identity=sha256(str(len(generated.universe)).encode()).hexdigest(),
    )
    stored = here.service.files.put([prepared.to_bytes()])
    database = here.service.database

    def make(session: Session) -> str:
        models.keep(session, tenant="", sha256=stored.sha256, name="generated.onnx", size=1)
        wanted = NewJob(
            model_sha256=stored.sha256, targets=(NewTarget(backend=_BACKEND),), request=SearchSpec().to_json()
        )
        return jobs.create(session, wanted, tenant="").job.searches[0].id

    search_id = database.run(make)
    presence = Presence(id="benchmark", backends=(_BACKEND,), slots=_HANDS)
    database.run(lambda session: workers.record_heartbeat(session, presence))
    claimed = database.run(lambda session: searches.claim(session, search_id, Stage.PREPARE, seconds=_LEASE))
    assert claimed is not None
    with database.transaction() as session:
        searches.store_prepared(
            session,
            claimed,
            identity=prepared.identity,
            tool="simulated",
            version="1",
            universe=stored.sha256,
            units=len(generated.universe),
        )
    return search_id


def _answered(here: Installed, search_id: str, asked: Sequence[tuple[Ask, Verdict]]) -> None:
    """As if workers had answered."""
    with here.service.database.transaction() as session:
        search = session.get_one(Search, search_id)
        known = {
            (probe.units_sha256, probe.attempt): probe
            for probe in session.scalars(select(Probe).where(Probe.search_id == search_id))
        }
        for ask, verdict in asked:
            units = f"{ask.units:x}"
            digest = sha256(units.encode()).hexdigest()
            probe = known.get((digest, ask.attempt))
            if probe is None:
                probe = Probe(
                    search_id=search_id,
                    units=units,
                    units_sha256=digest,
                    attempt=ask.attempt,
                    why=ask.why,
                    created_at=now(session),
                )
                session.add(probe)
            probe.state = ProbeState.DONE
            probe.verdict = to_json(replace(verdict, seconds=_COMPILE))
            probe.key = digest
            probe.started_at = probe.ended_at = now(session)
            search.calls += 1
