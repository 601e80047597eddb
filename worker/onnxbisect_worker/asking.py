"""A claimed probe from claim to verdict: compute its key, reuse or make the compile, store the answer."""

import logging
from datetime import timedelta

from sqlalchemy.orm import Session

from onnxbisect.answer import answer_about
from onnxbisect.session import OWN_FILE
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db import deduplication, probes, queues
from onnxbisect_db.claims import Claim
from onnxbisect_db.database import now
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_requests.protocol import ModelProcess, ProcessKilledError

#: Seconds between checks whether this worker compiles nothing else.
_LOOK_EVERY = 0.5

log = logging.getLogger(__name__)


def ask(context: WorkerContext, claim: Claim, keeper: LeaseKeeper) -> None:
    """Compile a claimed probe, and store its answer."""
    log.info("probe %s of search %s: %d units, attempt %d", *_facts(claim))
    with keeper.process() as process:
        if claim.alone:
            _wait_for_others(context, claim, keeper)
        _answer(context, claim, keeper, process)


def _wait_for_others(context: WorkerContext, claim: Claim, keeper: LeaseKeeper) -> None:
    """Wait until this worker compiles nothing else; it claims no other probe meanwhile (`queues.best`)."""
    while not keeper.ended:
        with context.service.database.session() as session:
            if not queues.others_run(session, context.worker, claim.probe.id):
                return
        context.stopping.wait(_LOOK_EVERY)
    raise ProcessKilledError("This process is to stop.")


def _answer(context: WorkerContext, claim: Claim, keeper: LeaseKeeper, process: ModelProcess) -> None:
    left = _seconds_left(context, claim)
    if left is not None and left <= 0:
        keeper.write(lambda session: probes.give_back(session, claim, spent=True))
        return
    key = claim.probe.key or _key(process, claim)
    named = keeper.write(lambda session: deduplication.dedupe_by_key(session, claim, key))
    if not named.mine:
        return
    if named.known is not None:
        assert claim.search.universe is not None  # noqa: S101 - searches that ask are prepared
        own = answer_about(named.known, context.universe(claim.search.universe), claim.units)
        keeper.write(lambda session: probes.answer(session, claim, own, cached=True))
        return
    asked = process.ask(claim.units, seconds_left=left)
    if asked.interrupted and asked.answer is not None:
        raise ProcessKilledError(asked.answer.verdict.message)
    keeper.write(lambda session: _store(session, claim, asked))


def _key(process: ModelProcess, claim: Claim) -> str:
    """The key of the probe's structure; for a culprit's own file, of that file, so that no other answer is reused
    (`culprit_files`).
    """
    own = process.digests([claim.units])[0] if claim.probe.why == OWN_FILE else ""
    return own or process.key(claim.units)


def _store(session: Session, claim: Claim, asked: ProbeResult) -> None:
    if asked.answer is None:  # the search's budget ended, not the compiler's limit
        probes.give_back(session, claim, spent=True)
        return
    verdict = asked.answer.verdict
    if verdict.status is Status.UNRESOLVED and verdict.kind is Kind.RESOURCE:
        # out of memory or disk: the same compile may succeed with nothing beside it
        probes.crashed(session, claim, verdict.message, asked.answer.log)
        return
    seconds = asked.engine_seconds
    probes.answer(session, claim, asked.answer, compiled=asked.compiled, engine_seconds=seconds)


def _seconds_left(context: WorkerContext, claim: Claim) -> float | None:
    budget = SearchSpec.from_json(claim.request).budget_seconds
    if budget is None:
        return None
    with context.service.database.session() as session:
        return (claim.started_at + timedelta(seconds=budget) - now(session)).total_seconds()


def _facts(claim: Claim) -> tuple[str, str, int, int]:
    return claim.probe.id, claim.search.id, claim.units.bit_count(), claim.probe.attempt
