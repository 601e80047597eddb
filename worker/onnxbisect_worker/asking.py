"""A probe in the hands of a worker: claimed, named, compiled, answered; and then the next one."""

import logging
import time
from datetime import timedelta

from sqlalchemy.orm import Session

from onnxbisect.answer import Answer
from onnxbisect.borrowing import borrowed
from onnxbisect.errors import OnnxBisectError
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.probing.prober import Asked
from onnxbisect_db import claims, naming, probes, queues
from onnxbisect_db.claims import Claim
from onnxbisect_db.database import now
from onnxbisect_db.states import Stage
from onnxbisect_worker.hold import Hold
from onnxbisect_worker.hosting import Host
from onnxbisect_worker.order import Order
from onnxbisect_worker.place import Place

#: A ring on the way through the queue leaves a slot empty for as long as a short compile takes.
_STINT_SECONDS = 3.0

log = logging.getLogger(__name__)


def probes_in_turn(place: Place, backend: str, *, seconds: float = _STINT_SECONDS) -> None:
    """Take probes of the backend, one after the other, while there are any; none is begun after so many seconds.

    Then comes a ring for the next, so that whatever else waits for this worker gets its turn in between.
    """
    until = time.monotonic() + seconds
    while probe(place, backend):
        if time.monotonic() >= until:
            if not place.stopping.is_set() and _more(place, backend):
                place.service.bell.probes(backend, 1)
            return


def probe(place: Place, backend: str) -> bool:
    """Take one probe of the backend, the next by right. False where there was none to take."""
    if place.stopping.is_set():
        return False
    settings = place.service.settings
    warm = place.hosts.warm()
    claim = place.service.database.run(
        lambda session: claims.claim(
            session, backend, worker=place.worker, seconds=settings.lease_seconds, at_most=place.at_most, warm=warm
        )
    )
    if claim is None:
        return False
    log.info("probe %s of search %s: %d units, attempt %d", *_facts(claim))
    with Hold(place, claim) as hold:
        answered = _ask(place, claim, hold)
    if answered:
        place.ring_search(claim.search_id, Stage.SEARCH, backend)
    return True


def _ask(place: Place, claim: Claim, hold: Hold) -> bool:
    """True where the caller is to ring for the coordinator."""
    try:
        with place.hosts.lent(place.case(claim)) as host, hold.over(host):
            return _answer(place, claim, hold, host)
    except OnnxBisectError as error:
        if hold.lost:
            log.info("probe %s: not wanted any more", claim.probe_id)
            return False
        if hold.ended:
            hold.write(lambda session: probes.give_back(session, claim))
            return False
        problem = str(error)
        log.warning("probe %s: %s", claim.probe_id, problem)
        return hold.write(lambda session: probes.lost(session, claim, problem))


def _answer(place: Place, claim: Claim, hold: Hold, host: Host) -> bool:
    left = _seconds_left(place, claim)
    if left is not None and left <= 0:
        return hold.write(lambda session: probes.give_back(session, claim, spent=True))
    key = claim.key or host.key(claim.units)
    named = hold.write(lambda session: naming.named(session, claim, key))
    if not named.mine:
        return False
    if named.known is not None:
        own = _own(place, claim, named.known)
        return hold.write(lambda session: probes.answer(session, claim, own, cached=True).ring)
    asked = host.ask(claim.units, seconds_left=left)
    return hold.write(lambda session: _written(session, claim, asked))


def _written(session: Session, claim: Claim, asked: Asked) -> bool:
    if asked.answer is None:  # the search's time is up, not the compiler's
        return probes.give_back(session, claim, spent=True)
    verdict = asked.answer.verdict
    if verdict.status is Status.UNRESOLVED and verdict.kind is Kind.RESOURCE:
        # killed from outside, or for want of memory: with others beside it, or none, the same compile may well end
        return probes.lost(session, claim, verdict.message, asked.answer.log)
    seconds = asked.engine_seconds
    return probes.answer(session, claim, asked.answer, compiled=asked.compiled, engine_seconds=seconds).ring


def _own(place: Place, claim: Claim, known: Answer) -> Answer:
    hints = known.verdict.hints
    if not (hints.nodes or hints.tensors):
        return known
    return borrowed(known, place.universes.read(place.service.files, claim.universe).universe, claim.units)


def _seconds_left(place: Place, claim: Claim) -> float | None:
    budget = Order.from_json(claim.request).budget_seconds
    if budget is None:
        return None
    with place.service.database.session() as session:
        return (claim.started_at + timedelta(seconds=budget) - now(session)).total_seconds()


def _more(place: Place, backend: str) -> bool:
    with place.service.database.session() as session:
        return queues.waiting(session, backend)


def _facts(claim: Claim) -> tuple[str, str, int, int]:
    return claim.probe_id, claim.search_id, claim.units.bit_count(), claim.attempt
