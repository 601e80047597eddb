"""Asking a claimed probe: its key is found, it is compiled where nobody has asked the same, and answered."""

import logging
from datetime import timedelta

from sqlalchemy.orm import Session

from onnxbisect.answer import Answer, answer_about
from onnxbisect.errors import OnnxBisectError
from onnxbisect.session import OWN_FILE
from onnxbisect.verdict import Kind, Status
from onnxbisect_backends.probing.prober import Asked
from onnxbisect_db import naming, probes, queues
from onnxbisect_db.claims import Claim
from onnxbisect_db.database import now
from onnxbisect_service.order import Order
from onnxbisect_worker.hold import Hold
from onnxbisect_worker.hosting import Host, HostKilledError
from onnxbisect_worker.outside import DATABASE_AWAY, outside, sentence
from onnxbisect_worker.place import Place

#: How often one that is to be asked alone looks whether it is.
_LOOK_EVERY = 0.5

log = logging.getLogger(__name__)


def ask(place: Place, claim: Claim) -> None:
    """Ask a claimed probe, and put on record what came of it."""
    log.info("probe %s of search %s: %d units, attempt %d", *_facts(claim))
    with Hold(place, claim) as hold:
        if place.stopping.is_set():  # since the probe was claimed
            _give_back(hold, claim)
            return
        try:
            with place.hosts.lent(place.case(claim), new=claim.alone) as host, hold.over(host):
                if claim.alone:
                    _wait_for_others(place, claim, hold)
                _answer(place, claim, hold, host)
        except DATABASE_AWAY:
            raise
        except Exception as error:
            _failed(claim, hold, error)


def _failed(claim: Claim, hold: Hold, error: Exception) -> None:
    """There is no answer."""
    if hold.lost:
        log.info("probe %s: not wanted any more", claim.probe_id)
        return
    problem, was_outside = sentence(error), outside(error)
    if hold.ended:
        _give_back(hold, claim)
    elif hold.leaves_to_others(error):
        log.warning("probe %s: left to another worker: %s", claim.probe_id, problem)
        _give_back(hold, claim)
    elif was_outside is not None:
        _lose(hold, claim, was_outside)
    else:
        log.warning("probe %s: %s", claim.probe_id, problem, exc_info=not isinstance(error, OnnxBisectError))
        hold.write(lambda session: probes.crashed(session, claim, problem))


def _lose(hold: Hold, claim: Claim, what: str) -> None:
    log.warning("probe %s: %s", claim.probe_id, what)
    hold.write(lambda session: probes.lost(session, claim, what))


def _wait_for_others(place: Place, claim: Claim, hold: Hold) -> None:
    """Until this worker asks no other probe; it claims none meanwhile (`queues.best`)."""
    while not hold.ended:
        with place.service.database.session() as session:
            if not queues.others_run(session, place.worker, claim.probe_id):
                return
        place.stopping.wait(_LOOK_EVERY)
    raise HostKilledError("This process is to stop.")


def _give_back(hold: Hold, claim: Claim) -> None:
    hold.write(lambda session: probes.give_back(session, claim))


def _answer(place: Place, claim: Claim, hold: Hold, host: Host) -> None:
    left = _seconds_left(place, claim)
    if left is not None and left <= 0:
        hold.write(lambda session: probes.give_back(session, claim, spent=True))
        return
    key = claim.key or _key(host, claim)
    named = hold.write(lambda session: naming.named(session, claim, key))
    if not named.mine:
        return
    if named.known is not None:
        own = _own(place, claim, named.known)
        hold.write(lambda session: probes.answer(session, claim, own, cached=True))
        return
    asked = host.ask(claim.units, seconds_left=left)
    if not asked.interrupted or asked.answer is None:
        hold.write(lambda session: _said(session, claim, asked))
    elif hold.ended:
        _give_back(hold, claim)
    else:
        _lose(hold, claim, asked.answer.verdict.message)


def _key(host: Host, claim: Claim) -> str:
    """Of its structure; for a culprit's own file of that file, which no other answers for (see `culprit_files`)."""
    own = host.digests([claim.units])[0] if claim.why == OWN_FILE else ""
    return own or host.key(claim.units)


def _said(session: Session, claim: Claim, asked: Asked) -> bool:
    if asked.answer is None:  # the search's time is up, not the compiler's
        return probes.give_back(session, claim, spent=True)
    verdict = asked.answer.verdict
    if verdict.status is Status.UNRESOLVED and verdict.kind is Kind.RESOURCE:
        # for want of memory, or of disk: with nothing beside it the same compile may well end
        return probes.crashed(session, claim, verdict.message, asked.answer.log)
    seconds = asked.engine_seconds
    return probes.answer(session, claim, asked.answer, compiled=asked.compiled, engine_seconds=seconds)


def _own(place: Place, claim: Claim, known: Answer) -> Answer:
    hints = known.verdict.hints
    if not (hints.nodes or hints.tensors):
        return known
    return answer_about(known, place.universe(claim.universe), claim.units)


def _seconds_left(place: Place, claim: Claim) -> float | None:
    budget = Order.from_json(claim.request).budget_seconds
    if budget is None:
        return None
    with place.service.database.session() as session:
        return (claim.started_at + timedelta(seconds=budget) - now(session)).total_seconds()


def _facts(claim: Claim) -> tuple[str, str, int, int]:
    return claim.probe_id, claim.search_id, claim.units.bit_count(), claim.attempt
