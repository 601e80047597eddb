"""Chooses a worker's next work: coordinate a search, write a report, read or repair a model, or compile a probe."""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from threading import Lock
from typing import Any

from sqlalchemy.orm import Session

from onnxbisect.errors import ModelError, OnnxBisectError, OptionError
from onnxbisect_db import claims, locking, probes, queues, search_queue, searches, workers
from onnxbisect_db.claims import Claim
from onnxbisect_db.errors import LostClaimError
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.search_queue import Taker
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import AT_BACKEND, Fault, Stage
from onnxbisect_worker.asking import ask
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.coordinating import coordinate
from onnxbisect_worker.lease_keeper import LeaseKeeper, WorkT
from onnxbisect_worker.model_requests.protocol import ProcessKilledError, ProcessLostError, ToolBrokenError
from onnxbisect_worker.outside import DATABASE_AWAY, outside, sentence
from onnxbisect_worker.prepared import OtherVersionError
from onnxbisect_worker.preparing import prepare
from onnxbisect_worker.repairing import change_file, repair
from onnxbisect_worker.reporting import write_report
from onnxbisect_worker.slots import Work

#: Seconds between models that are read while probes wait.
_READ_EVERY = 3.0
#: Seconds until a worker asks again which of a thousand waiting jobs may begin, once none may.
_BEGIN_EVERY = 0.5

_STEPS = {
    Stage.PREPARE: prepare,
    Stage.FILES: change_file,
    Stage.SEARCH: coordinate,
    Stage.REPORT: write_report,
    Stage.REPAIR: repair,
}

log = logging.getLogger(__name__)

_Claimed = ClaimedSearch | Claim
#: Claims one kind of work, given the backends whose compilers work here.
_Kind = Callable[[Session, Collection[str]], _Claimed | None]


class Claiming:
    """Claims for one worker, one at a time. Kinds of work take turns, and so do its backends.

    While probes wait, a model is read only every few seconds, so that jobs which have begun end before others begin. At
    most `probes` probes are compiled at a time; further slots are for work without a compiler.
    """

    def __init__(self, context: WorkerContext, *, control: bool, probes: int) -> None:
        self._context = context
        self._free = probes
        self._lock = Lock()
        self._backends = deque(context.backends)
        self._read: _Kind = self._model
        self._read_at = self._begin_at = 0.0
        self._kinds: list[_Kind] = [self._coordinated] * control + [self._read, self._probe] * bool(context.backends)

    def __call__(self) -> Work | None:
        """Work of the kind served longest ago; None if there is none."""
        if self._context.stopping.is_set():
            return None
        kinds = self._kinds
        if self._read in kinds and time.monotonic() < self._read_at:
            kinds = [*(kind for kind in kinds if kind is not self._read), self._read]
        found = self._context.service.database.run(partial(self._first, kinds))
        if found is None:
            return None
        kind, claimed = found
        self._kinds = [*(it for it in self._kinds if it is not kind), kind]
        if isinstance(claimed, ClaimedSearch):
            if kind is self._read:
                self._read_at = time.monotonic() + _READ_EVERY
            return partial(work_on, self._context, claimed)
        with self._lock:
            self._free -= 1
        self._backends.remove(claimed.search.backend)
        self._backends.append(claimed.search.backend)
        return partial(self._ask, claimed)

    def _first(self, kinds: Collection[_Kind], session: Session) -> tuple[_Kind, _Claimed] | None:
        able = workers.able(session, self._context.worker, self._backends)
        for kind in kinds:
            claimed = kind(session, able)
            if claimed is not None:
                return kind, claimed
        return None

    def _coordinated(self, session: Session, _able: Collection[str]) -> ClaimedSearch | None:
        return search_queue.take(session, self._taker((Stage.SEARCH, Stage.REPORT), None, begin=True))

    def _model(self, session: Session, able: Collection[str]) -> ClaimedSearch | None:
        taker = self._taker(AT_BACKEND, able, begin=time.monotonic() >= self._begin_at)
        claimed = search_queue.take(session, taker)
        if claimed is None and taker.begin and search_queue.waits(session, taker):
            self._begin_at = time.monotonic() + _BEGIN_EVERY
        return claimed

    def _taker(self, stages: Collection[Stage], backends: Collection[str] | None, *, begin: bool) -> Taker:
        context = self._context
        return Taker(
            worker=context.worker,
            seconds=context.service.settings.lease_seconds,
            stages=stages,
            backends=backends,
            slots=context.slots,
            begin=begin,
        )

    def _probe(self, session: Session, able: Collection[str]) -> Claim | None:
        with self._lock:
            if not self._free:
                return None
        if locking.holds_any(session):  # locks are taken on queues before jobs
            return None
        context = self._context
        due = queues.due(session, able)
        for backend in due and [name for name in self._backends if name in due]:
            request = ClaimRequest(
                backend=backend,
                worker=context.worker,
                seconds=context.service.settings.lease_seconds,
                warm=context.pool.warm(),
            )
            claim = claims.claim(session, request)
            if claim is not None:
                return claim
        return None

    def _ask(self, claim: Claim) -> None:
        try:
            work_on(self._context, claim)
        finally:
            with self._lock:
                self._free += 1


def work_on(context: WorkerContext, held: _Claimed) -> None:
    """Do the claimed work. If the database is away, nothing is stored and the lease expires."""
    if isinstance(held, Claim):
        _do(LeaseKeeper(context, held), ask)
    else:
        _do(LeaseKeeper(context, held), _STEPS[held.stage])


def _do(keeper: LeaseKeeper[WorkT], step: Callable[[LeaseKeeper[WorkT]], None]) -> None:
    try:
        with keeper:
            try:
                if keeper.ended:  # the worker stops since it was claimed
                    raise ProcessKilledError("The worker is to stop.")
                step(keeper)
            except (LostClaimError, *DATABASE_AWAY):
                raise
            except Exception as error:
                _give_up(keeper, error)
    except LostClaimError:
        log.info("%s: another worker has it", keeper.claimed)


def _give_up(keeper: LeaseKeeper[Any], error: Exception) -> None:
    """Store a failure: the work goes to another worker or a later attempt, or the error becomes its result."""
    held: _Claimed = keeper.claimed
    table = probes if isinstance(held, Claim) else searches
    what, was_outside = sentence(error), outside(error)
    if isinstance(error, ToolBrokenError) and isinstance(held, ClaimedSearch):
        was_outside = None  # if it works nowhere, the search fails
    if keeper.lost:
        log.info("%s: not wanted any more", held)
    elif keeper.ended:
        keeper.write(lambda session: table.give_back(session, held))
    elif isinstance(error, OtherVersionError):
        log.warning("%s: its target begins again: %s", held, what)
        keeper.write(lambda session: searches.begin_again(session, held, what))
    elif keeper.leaves_to_others(error):
        log.warning("%s: left to another worker: %s", held, what)
        keeper.write(lambda session: table.give_back(session, held))
    elif was_outside is not None:
        log.warning("%s: %s", held, was_outside)
        keeper.write(lambda session: table.lost(session, held, was_outside))
    elif isinstance(held, Claim) or isinstance(error, ProcessLostError) or not isinstance(error, OnnxBisectError):
        log.warning("%s: %s", held, what, exc_info=not isinstance(error, OnnxBisectError))
        keeper.write(lambda session: table.crashed(session, held, what))
    else:
        log.warning("%s: %s", held, what)
        fault = Fault.REQUEST if isinstance(error, ModelError | OptionError) else Fault.SERVICE
        keeper.write(lambda session: searches.fail(session, held, what, fault))
