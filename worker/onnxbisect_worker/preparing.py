"""The first step of a search: a model process reads the model for the compiler, and stores what planning needs."""

import logging

from sqlalchemy.orm import Session

from onnxbisect.errors import OnnxBisectError
from onnxbisect.session import OWN_FILE
from onnxbisect_db import plans, searches
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_requests.protocol import ModelProcess
from onnxbisect_worker.outside import outside
from onnxbisect_worker.prepared import Prepared

log = logging.getLogger(__name__)


def prepare(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Prepare a claimed search, so that probes can be planned."""
    search = keeper.claimed.search
    log.info("search %s: preparing for %s", search.id, search.backend)
    with keeper.process() as process:
        prepared = process.prepare()
        graph = None if search.asked_for is not None else _drawn(keeper, process)
    stored = keeper.service.files.put([prepared.to_bytes()])
    keeper.write(lambda session: _prepared(session, keeper, prepared, stored.sha256, graph))


def _drawn(keeper: LeaseKeeper[ClaimedSearch], process: ModelProcess) -> str | None:
    """The stored data for pictures. If the machine fails, the search continues without."""
    try:
        return keeper.service.files.put([process.draw().encode()]).sha256
    except OnnxBisectError as error:
        if keeper.ended or outside(error) is not None:
            raise
        log.warning("search %s: there will be no picture of the model: %s", keeper.claimed.search.id, error)
        return None


def _prepared(
    session: Session, keeper: LeaseKeeper[ClaimedSearch], prepared: Prepared, sha256: str, graph: str | None
) -> None:
    claimed, spec, identity = keeper.claimed, keeper.spec, prepared.identity
    # the earlier search may be of another file with these units, so the whole and its culprits' own files do not count
    whole = f"{prepared.universe.everything:x}"
    recalled = plans.recall(session, claimed, universe=sha256, identity=identity, whole=whole, without=OWN_FILE)
    if recalled:
        log.info("search %s: %d answers of an earlier search", claimed.search.id, recalled)
    searches.prepared(
        session,
        claimed,
        identity=identity,
        tool=prepared.target.tool,
        version=prepared.target.version,
        universe=sha256,
        units=len(prepared.universe),
        graph=graph,
        changeable=prepared.changeable and claimed.search.asked_for is None and not (spec.as_is or spec.whole),
    )
