"""A claimed probe from claim to verdict: compute its key, reuse or make the compile, store the answer."""

import logging

from sqlalchemy.orm import Session

from onnxbisect.answer import answer_about
from onnxbisect.session import AS_PART, OWN_FILE
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.probing.prober import ProbeResult
from onnxbisect_db import probes, queues
from onnxbisect_db.claims import Claim
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_requests.protocol import ModelProcess, ProcessKilledError

#: Seconds between checks whether this worker compiles nothing else.
_LOOK_EVERY = 0.5

log = logging.getLogger(__name__)


def ask(keeper: LeaseKeeper[Claim]) -> None:
    """Compile a claimed probe, and store its answer."""
    claim = keeper.claimed
    log.info(
        "probe %s of search %s: %d units, attempt %d",
        *(claim.probe.id, claim.search.id, claim.units.bit_count(), claim.probe.attempt),
    )
    with keeper.process() as process:
        if claim.alone:
            _wait_for_others(keeper)
        _answer(keeper, process)


def _wait_for_others(keeper: LeaseKeeper[Claim]) -> None:
    """Wait until this worker compiles nothing else; it claims no other probe meanwhile (`queues.best`)."""
    while not keeper.ended:
        with keeper.service.database.session() as session:
            if not queues.others_run(session, keeper.context.worker, keeper.claimed.probe.id):
                return
        keeper.context.stopping.wait(_LOOK_EVERY)
    raise ProcessKilledError("This process is to stop.")


def _answer(keeper: LeaseKeeper[Claim], process: ModelProcess) -> None:
    claim, left = keeper.claimed, None
    if keeper.spec.budget_seconds is not None:
        with keeper.service.database.session() as session:
            left = keeper.seconds_left(session)
    if left is not None and left <= 0:
        keeper.write(lambda session: probes.give_back(session, claim, spent=True))
        return
    key = claim.probe.key or _key(process, claim)
    named = keeper.write(lambda session: probes.dedupe_by_key(session, claim, key))
    if not named.mine:
        return
    if named.known is not None:
        own = answer_about(named.known, keeper.universe, claim.units)
        keeper.write(lambda session: probes.answer(session, claim, own, cached=True))
        return
    asked = process.ask(claim.units, seconds_left=left, as_part=claim.probe.why == AS_PART)
    if asked.interrupted and asked.answer is not None:
        raise ProcessKilledError(asked.answer.verdict.message)
    keeper.write(lambda session: _store(session, claim, asked))


def _key(process: ModelProcess, claim: Claim) -> str:
    """The key of the probe's structure; for a culprit's own file, of that file, so that no other answer is reused
    (`culprit_files`).
    """
    own = process.digests([claim.units])[0] if claim.probe.why == OWN_FILE else ""
    return own or process.key(claim.units, as_part=claim.probe.why == AS_PART)


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
