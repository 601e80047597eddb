"""The first step of a search: a model process with the compiler reads the model, and stores what others plan on."""

import logging

from sqlalchemy.orm import Session

from onnxbisect.errors import ModelError, OnnxBisectError, OptionError
from onnxbisect.session import OWN_FILE
from onnxbisect_db import plans, searches
from onnxbisect_db.errors import LostTurnError
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import Fault
from onnxbisect_service.order import Order
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_processes.protocol import ModelProcess, ProcessLostError, ToolBrokenError
from onnxbisect_worker.outside import DATABASE_AWAY, outside, sentence
from onnxbisect_worker.prepared import Prepared

log = logging.getLogger(__name__)


def prepare(context: WorkerContext, turn: Turn) -> None:
    """Bring a claimed search to where it asks."""
    log.info("search %s: preparing for %s", turn.search.id, turn.search.backend)
    with LeaseKeeper(context, turn) as keeper:
        try:
            with context.pool.acquire(context.case(turn), new=turn.alone) as process, keeper.kills(process):
                prepared = process.prepare()
                graph = None if turn.search.asked_for is not None else _drawn(context, turn, process, keeper)
            stored = context.service.files.put([prepared.to_bytes()])
        except DATABASE_AWAY:
            raise
        except Exception as error:
            give_up(turn, keeper, error)
            return
        try:
            keeper.write(lambda session: _prepared(session, turn, prepared, stored.sha256, graph))
        except LostTurnError:
            return


def give_up(turn: Turn, keeper: LeaseKeeper, error: Exception) -> None:
    """The turn has not led to its end: it is tried again where that may be another time, else the search fails."""
    what, was_outside = sentence(error), outside(error)
    try:
        if keeper.lost:
            log.info("search %s: not wanted any more", turn.search.id)
        elif keeper.ended:
            keeper.write(lambda session: searches.give_back(session, turn))
        elif was_outside is not None and not isinstance(error, ToolBrokenError):
            log.warning("search %s: %s", turn.search.id, was_outside)
            keeper.write(lambda session: searches.lost(session, turn, was_outside))
        elif isinstance(error, ProcessLostError) or not isinstance(error, OnnxBisectError):
            log.warning("search %s: %s", turn.search.id, what, exc_info=not isinstance(error, OnnxBisectError))
            keeper.write(lambda session: searches.crashed(session, turn, what))
        elif keeper.leaves_to_others(error):
            log.warning("search %s: left to another worker: %s", turn.search.id, error)
            keeper.write(lambda session: searches.give_back(session, turn))
        else:
            fault = Fault.REQUEST if isinstance(error, ModelError | OptionError) else Fault.SERVICE
            log.warning("search %s: %s", turn.search.id, what)
            keeper.write(lambda session: searches.fail(session, turn, what, fault))
    except LostTurnError:
        log.info("search %s: somebody else has it", turn.search.id)


def _drawn(context: WorkerContext, turn: Turn, process: ModelProcess, keeper: LeaseKeeper) -> str | None:
    """What pictures are made from, stored. A search goes on without, unless that was not the model's doing."""
    try:
        return context.service.files.put([process.draw()]).sha256
    except OnnxBisectError as error:
        if keeper.ended or outside(error) is not None:
            raise
        log.warning("search %s: there will be no picture of the model: %s", turn.search.id, error)
        return None


def _prepared(session: Session, turn: Turn, prepared: Prepared, sha256: str, graph: str | None) -> None:
    order = Order.from_json(turn.request)
    searches.prepared(
        session,
        turn,
        identity=prepared.identity,
        tool=prepared.target.tool,
        version=prepared.target.version,
        universe=sha256,
        units=len(prepared.universe),
        graph=graph,
        changeable=prepared.changeable and turn.search.asked_for is None and not (order.as_is or order.whole),
    )
    # the like search may be of a model with other weights, whose culprits' own files are not this model's
    recalled = plans.recall(session, turn, without=OWN_FILE)
    if recalled:
        log.info("search %s: %d answers of an earlier search", turn.search.id, recalled)
    searches.release(session, turn)
