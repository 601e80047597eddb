"""The first step of a search: a host with the compiler reads the model, and leaves behind what everybody plans on."""

import logging

from sqlalchemy.orm import Session

from onnxbisect.errors import ModelError, OnnxBisectError, OptionError
from onnxbisect.session import OWN_FILE
from onnxbisect_db import plans, searches
from onnxbisect_db.errors import LostTurnError
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Fault
from onnxbisect_worker.hold import Hold
from onnxbisect_worker.hosting import Host, HostLostError, ToolBrokenError
from onnxbisect_worker.outside import DATABASE_AWAY, outside, sentence
from onnxbisect_worker.place import Place
from onnxbisect_worker.prepared import Prepared

log = logging.getLogger(__name__)


def prepare(place: Place, turn: Turn) -> None:
    """Bring a claimed search to where it asks."""
    log.info("search %s: preparing for %s", turn.search_id, turn.backend)
    with Hold(place, turn) as hold:
        try:
            with place.hosts.lent(place.case(turn), new=turn.alone) as host, hold.over(host):
                prepared = host.prepare()
                graph = None if turn.asked_for is not None else _drawn(place, turn, host, hold)
            stored = place.service.files.put([prepared.to_bytes()])
        except DATABASE_AWAY:
            raise
        except Exception as error:
            give_up(turn, hold, error)
            return
        try:
            hold.write(lambda session: _prepared(session, turn, prepared, stored.sha256, graph))
        except LostTurnError:
            return


def give_up(turn: Turn, hold: Hold, error: Exception) -> None:
    """The turn has not led to its end: it is tried again where that may be another time, else the search fails."""
    what, was_outside = sentence(error), outside(error)
    try:
        if hold.lost:
            log.info("search %s: not wanted any more", turn.search_id)
        elif hold.ended:
            hold.write(lambda session: searches.release(session, turn))
        elif was_outside is not None and not isinstance(error, ToolBrokenError):
            log.warning("search %s: %s", turn.search_id, was_outside)
            hold.write(lambda session: searches.lost(session, turn, was_outside))
        elif isinstance(error, HostLostError) or not isinstance(error, OnnxBisectError):
            log.warning("search %s: %s", turn.search_id, what, exc_info=not isinstance(error, OnnxBisectError))
            hold.write(lambda session: searches.crashed(session, turn, what))
        elif hold.leaves_to_others(error):
            log.warning("search %s: left to another worker: %s", turn.search_id, error)
            hold.write(lambda session: searches.release(session, turn))
        else:
            fault = Fault.REQUEST if isinstance(error, ModelError | OptionError) else Fault.SERVICE
            log.warning("search %s: %s", turn.search_id, what)
            hold.write(lambda session: searches.fail(session, turn, what, fault))
    except LostTurnError:
        log.info("search %s: somebody else has it", turn.search_id)


def _drawn(place: Place, turn: Turn, host: Host, hold: Hold) -> str | None:
    """What pictures are made from, stored. A search goes on without, unless that was not the model's doing."""
    try:
        return place.service.files.put([host.draw()]).sha256
    except OnnxBisectError as error:
        if hold.ended or outside(error) is not None:
            raise
        log.warning("search %s: there will be no picture of the model: %s", turn.search_id, error)
        return None


def _prepared(session: Session, turn: Turn, prepared: Prepared, sha256: str, graph: str | None) -> None:
    searches.prepared(
        session,
        turn,
        identity=prepared.identity,
        tool=prepared.target.tool,
        version=prepared.target.version,
        universe=sha256,
        units=len(prepared.universe),
        graph=graph,
    )
    # the like search may be of a model with other weights, whose culprits' own files are not this model's
    recalled = plans.recall(session, turn, without=OWN_FILE)
    if recalled:
        log.info("search %s: %d answers of an earlier search", turn.search_id, recalled)
    searches.release(session, turn)
