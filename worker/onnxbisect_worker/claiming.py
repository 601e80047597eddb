"""What a worker does next: coordinate a search, write a report, read or repair a model, or ask a probe."""

import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from threading import Lock

from sqlalchemy.orm import Session

from onnxbisect_db import claims, notices, queues, turns, workers
from onnxbisect_db.claims import Claim
from onnxbisect_db.queues import ClaimRequest
from onnxbisect_db.searches import Turn
from onnxbisect_db.states import AT_BACKEND, Stage
from onnxbisect_db.turns import Taker
from onnxbisect_worker.asking import ask
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.coordinating import coordinate
from onnxbisect_worker.preparing import prepare
from onnxbisect_worker.repairing import change
from onnxbisect_worker.reporting import write_report
from onnxbisect_worker.slots import Work

#: Seconds between two models that are read while probes wait.
_READ_EVERY = 3.0

_STEPS = {
    Stage.PREPARE: prepare,
    Stage.FILES: change,
    Stage.SEARCH: coordinate,
    Stage.REPORT: write_report,
    Stage.REPAIR: change,
}


class Claiming:
    """Claims for one worker, one at a time. The kinds of work are served in turn, and so are its backends. But while
    probes wait, a model is read every few seconds only: jobs that have begun come to an end before all have begun.

    No more than `probes` probes are asked at a time, where the worker has more slots than that: the others are for what
    needs no compiler.
    """

    def __init__(self, context: WorkerContext, *, control: bool, probes: int) -> None:
        self._context = context
        self._free = probes
        self._lock = Lock()
        self._backends = deque(context.backends)
        self._kinds: deque[Callable[[], Work | None]] = deque()
        if control:
            self._kinds.append(partial(self._search, Stage.SEARCH, Stage.REPORT))
        self._read = partial(self._search, *AT_BACKEND)
        self._read_at = 0.0
        if context.backends:
            self._kinds += [self._read, self._probe]

    def __call__(self) -> Work | None:
        """Work of the kind that was served longest ago; None where there is none."""
        kinds = list(self._kinds)
        if self._read in kinds and time.monotonic() < self._read_at:
            kinds.remove(self._read)
            kinds.append(self._read)
        for kind in kinds:
            work = None if self._context.stopping.is_set() else kind()
            if work is not None:
                self._kinds.remove(kind)
                self._kinds.append(kind)
                if kind is self._read:
                    self._read_at = time.monotonic() + _READ_EVERY
                return work
        return None

    def concerns(self, topics: Collection[str]) -> bool:
        """Whether this worker has to look at something when these were notified of."""
        mine = {notices.CONTROL, *map(notices.backend, self._context.backends)}
        return not mine.isdisjoint(topics)

    def _search(self, *stages: Stage) -> Work | None:
        context, seconds = self._context, self._context.service.settings.lease_seconds

        def take(session: Session) -> Turn | None:
            at_backend = stages[0].at_backend
            backends = workers.able(session, context.worker, context.backends) if at_backend else None
            taker = Taker(worker=context.worker, seconds=seconds, stages=stages, backends=backends, slots=context.slots)
            return turns.take(session, taker)

        turn = context.service.database.run(take)
        return None if turn is None else partial(_STEPS[turn.stage], context, turn)

    def _probe(self) -> Work | None:
        with self._lock:
            if not self._free:
                return None
        claim = self._context.service.database.run(self._next_probe)
        if claim is None:
            return None
        with self._lock:
            self._free -= 1
        self._backends.remove(claim.backend)
        self._backends.append(claim.backend)
        return partial(self._ask, claim)

    def _next_probe(self, session: Session) -> Claim | None:
        context = self._context
        due = queues.due(session, workers.able(session, context.worker, self._backends))
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
            ask(self._context, claim)
        finally:
            with self._lock:
                self._free += 1
