"""A probe in the hands of a worker: claimed, named, compiled, answered; and then the next one."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from onnxbisect.answer import Answer, answer_about
from onnxbisect.errors import OnnxBisectError
from onnxbisect.session import OWN_FILE
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.probing.prober import Asked
from onnxbisect_db import claims, naming, probes, queues
from onnxbisect_db.claims import Claim
from onnxbisect_db.database import now
from onnxbisect_db.queues import Hand
from onnxbisect_db.states import Stage
from onnxbisect_worker.hold import Hold
from onnxbisect_worker.hosting import Host, HostKilledError
from onnxbisect_worker.order import Order
from onnxbisect_worker.outside import DATABASE_AWAY, outside, sentence
from onnxbisect_worker.place import ASIDE_SECONDS, Place
from onnxbisect_worker.stint import STINT_SECONDS, Stint

#: How often one that is to be asked alone looks whether it is.
_LOOK_EVERY = 0.5

log = logging.getLogger(__name__)


def probes_in_turn(place: Place, backend: str, *, seconds: float = STINT_SECONDS) -> None:
    """Take probes of the backend, one after the other, while there are any; after so many seconds no other one.

    Then comes a ring for the next, so that whatever else waits for this worker gets its turn in between. A worker whose
    compiler does not work leaves all of this to those where it does.
    """
    if place.steps_aside(backend):
        if _more(place, backend) and not place.stopping.wait(ASIDE_SECONDS):
            place.service.bell.probes(backend, 1)
        return
    stint = Stint(place, backend, seconds)
    claim = _claimed(place, backend)
    while claim is not None:
        claim = _asked(place, claim, stint)
        if claim is None and not stint.is_over():
            claim = _claimed(place, backend)
    if stint.is_over() and not place.stopping.is_set() and _more(place, backend):
        place.service.bell.probes(backend, 1)


def probe(place: Place, backend: str) -> bool:
    """Take one probe of the backend, the next by right. False where there was none to take."""
    claim = _claimed(place, backend)
    if claim is not None:
        _asked(place, claim, Stint(place, backend, 0.0))
    return claim is not None


@dataclass(frozen=True)
class _Told:
    """What came of a probe: whether the caller is to ring for the coordinator, and the probe that was taken in the same
    transaction.
    """

    ring: bool
    then: Claim | None = None


def _claimed(place: Place, backend: str) -> Claim | None:
    if place.stopping.is_set():
        return None
    hand = _hand(place, backend)
    return place.service.database.run(lambda session: claims.claim(session, hand))


def _hand(place: Place, backend: str, *warm: str) -> Hand:
    return Hand(
        backend=backend,
        worker=place.worker,
        seconds=place.service.settings.lease_seconds,
        at_most=place.at_most,
        warm={*place.hosts.warm(), *warm},
    )


def _asked(place: Place, claim: Claim, stint: Stint) -> Claim | None:
    """Ask the probe. Returns the next one, where the stint is not over and there was one to take."""
    log.info("probe %s of search %s: %d units, attempt %d", *_facts(claim))
    with Hold(place, claim) as hold:
        told = _ask(place, claim, hold, stint)
    if told.ring:
        place.ring_search(claim.search_id, Stage.SEARCH, claim.backend)
    return told.then


def _ask(place: Place, claim: Claim, hold: Hold, stint: Stint) -> _Told:
    if place.stopping.is_set():  # since the probe was taken
        return _given_back(hold, claim)
    try:
        with place.hosts.lent(place.case(claim), new=claim.alone) as host, hold.over(host):
            if claim.alone:
                _wait_for_others(place, claim, hold)
            return _answer(place, claim, hold, host, stint)
    except DATABASE_AWAY:
        raise
    except Exception as error:
        return _failed(claim, hold, stint, error)


def _failed(claim: Claim, hold: Hold, stint: Stint, error: Exception) -> _Told:
    """There is no answer."""
    if hold.lost:
        log.info("probe %s: not wanted any more", claim.probe_id)
        return _Told(ring=False)
    if hold.ended:
        return _given_back(hold, claim)
    problem, was_outside = sentence(error), outside(error)
    if hold.leaves_to_others(error):
        log.warning("probe %s: left to another worker: %s", claim.probe_id, problem)
        stint.end()
        return _given_back(hold, claim)
    if was_outside is not None:
        return _lost(hold, claim, was_outside)
    log.warning("probe %s: %s", claim.probe_id, problem, exc_info=not isinstance(error, OnnxBisectError))
    return _Told(ring=hold.write(lambda session: probes.crashed(session, claim, problem)))


def _lost(hold: Hold, claim: Claim, what: str) -> _Told:
    log.warning("probe %s: %s", claim.probe_id, what)
    hold.write(lambda session: probes.lost(session, claim, what))
    return _Told(ring=False)


def _wait_for_others(place: Place, claim: Claim, hold: Hold) -> None:
    """Until this worker has no other probe in hand; it takes none meanwhile (`queues.best`)."""
    while not hold.ended:
        with place.service.database.session() as session:
            if not queues.others_run(session, place.worker, claim.probe_id):
                return
        place.stopping.wait(_LOOK_EVERY)
    raise HostKilledError("This process is to stop.")


def _given_back(hold: Hold, claim: Claim) -> _Told:
    hold.write(lambda session: probes.give_back(session, claim))
    return _Told(ring=False)


def _answer(place: Place, claim: Claim, hold: Hold, host: Host, stint: Stint) -> _Told:
    left = _seconds_left(place, claim)
    if left is not None and left <= 0:
        return _Told(ring=hold.write(lambda session: probes.give_back(session, claim, spent=True)))
    key = claim.key or _key(host, claim)
    named = hold.write(lambda session: naming.named(session, claim, key))
    if not named.mine:
        return _Told(ring=False)
    if named.known is not None:
        own = _own(place, claim, named.known)
        return _written(place, claim, hold, stint, lambda session: probes.answer(session, claim, own, cached=True).ring)
    asked = host.ask(claim.units, seconds_left=left)
    if asked.interrupted and asked.answer is not None:
        if hold.ended:
            return _given_back(hold, claim)
        return _lost(hold, claim, asked.answer.verdict.message)
    return _written(place, claim, hold, stint, lambda session: _said(session, claim, asked))


def _key(host: Host, claim: Claim) -> str:
    """Of its structure; for a culprit's own file of that file, which no other answers for (see `culprit_files`)."""
    own = host.digests([claim.units])[0] if claim.why == OWN_FILE else ""
    return own or host.key(claim.units)


def _written(place: Place, claim: Claim, hold: Hold, stint: Stint, say: Callable[[Session], bool]) -> _Told:
    """Say what came of the probe and take the next one, in one transaction: a hand does not idle in between."""
    if stint.is_over():
        return _Told(ring=hold.write(say))
    hand = _hand(place, claim.backend, claim.universe)

    def work(session: Session) -> _Told:
        queue = claims.enter(session, hand)
        return _Told(ring=say(session), then=claims.take(session, hand, queue))

    return hold.write(work)


def _said(session: Session, claim: Claim, asked: Asked) -> bool:
    if asked.answer is None:  # the search's time is up, not the compiler's
        return probes.give_back(session, claim, spent=True)
    verdict = asked.answer.verdict
    if verdict.status is Status.UNRESOLVED and verdict.kind is Kind.RESOURCE:
        # for want of memory, or of disk: with nothing beside it the same compile may well end
        return probes.crashed(session, claim, verdict.message, asked.answer.log)
    seconds = asked.engine_seconds
    return probes.answer(session, claim, asked.answer, compiled=asked.compiled, engine_seconds=seconds).ring


def _own(place: Place, claim: Claim, known: Answer) -> Answer:
    hints = known.verdict.hints
    if not (hints.nodes or hints.tensors):
        return known
    return answer_about(known, place.universes.read(place.service.files, claim.universe), claim.units)


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
