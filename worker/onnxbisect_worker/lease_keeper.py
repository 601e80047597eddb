"""Claimed work while it is done: all that its step needs, under a lease that is renewed.

A thread renews the lease and checks every second whether the result is still wanted. If it is not, or the worker stops,
the thread kills the model process. While the database cannot be reached, the thread retries until the lease has
expired; after that, another worker may claim the work.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Event, Lock, Thread
from typing import Generic, Self, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import Session
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from onnxbisect.universe import Universe
from onnxbisect_db import leases, workers
from onnxbisect_db.database import now
from onnxbisect_db.probes import Claim
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.model_requests.protocol import Case, ModelProcess, ToolBrokenError

_LOOK_EVERY = 1.0
#: Seconds between kills, because a process may only now start its compiler.
_KILL_EVERY = 0.1

T = TypeVar("T")
WorkT = TypeVar("WorkT", bound=ClaimedSearch | Claim)
log = logging.getLogger(__name__)


class LeaseKeeper(Generic[WorkT]):
    """Claimed work, whose lease is renewed while the context lasts."""

    def __init__(self, context: WorkerContext, claimed: WorkT) -> None:
        self.context = context
        self.service = context.service
        self.claimed = claimed
        self._seconds = self.service.settings.lease_seconds
        self._over = Event()
        self._lost = Event()
        self._lock = Lock()
        self._process: ModelProcess | None = None
        self._thread = Thread(target=self._watch, name="lease keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def lost(self) -> bool:
        """Whether the lease is gone, so that nothing this holder writes counts."""
        return self._lost.is_set()

    @property
    def ended(self) -> bool:
        """Whether the lease is lost or the worker stops; the model process was then killed."""
        return self.lost or self.context.stopping.is_set()

    @cached_property
    def spec(self) -> SearchSpec:
        """The request besides the target."""
        return SearchSpec.from_json(self.claimed.request)

    @property
    def universe(self) -> Universe:
        """The units of the model; the search is prepared."""
        assert self.claimed.search.universe is not None  # noqa: S101 - searches that ask are prepared
        return self.context.universe(self.claimed.search.universe)

    @property
    def forms_differ(self) -> bool:
        """Whether the whole model, written as its parts are, is another file than the user's."""
        return self.context.prepared(self.claimed.search.universe or "").forms_differ

    def seconds_left(self, session: Session) -> float | None:
        """The rest of the search's budget of seconds; None is unlimited."""
        budget = self.spec.budget_seconds
        return None if budget is None else budget - self.seconds_passed(session)

    def seconds_passed(self, session: Session) -> float:
        """Seconds since the search began."""
        return (now(session) - self.claimed.started_at).total_seconds()

    @contextmanager
    def process(self) -> Iterator[ModelProcess]:
        """A model process for the work, which is killed as soon as this has ended."""
        job, search = self.claimed.job, self.claimed.search
        case = Case(
            tenant=job.tenant,
            onnx=self.claimed.onnx,
            model_name=job.model_name,
            files=self.claimed.data,
            backend=search.backend,
            options={name: str(value) for name, value in search.options.items()},
            spec=self.spec,
            prepared=search.universe,
        )
        with self.context.pool.acquire(case, new=self.claimed.alone) as process:
            with self._lock:
                self._process = process
            try:
                yield process
            finally:
                with self._lock:
                    self._process = None

    def write(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction, with retries as long as the lease lasts.

        It may store hours of compiling, so a short outage of the database must not lose it.
        """
        retrying = Retrying(
            retry=retry_if_exception_type((OperationalError, InterfaceError)),
            wait=wait_fixed(_LOOK_EVERY),
            stop=stop_after_delay(self._seconds),
            reraise=True,
        )
        done: T = retrying(self.service.database.run, work)
        return done

    def leaves_to_others(self, error: Exception) -> bool:
        """Record a compiler that is broken here; whether another worker should do the work then."""
        if not isinstance(error, ToolBrokenError):
            return False
        worker, backend, what = self.context.worker, self.claimed.search.backend, str(error)
        return self.write(lambda session: workers.record_broken_tool(session, worker, backend, what))

    def _watch(self) -> None:
        lease, seconds = self.claimed.lease, self._seconds
        sure_until = time.monotonic() + seconds
        renew_at = time.monotonic() + seconds / 3
        while not self._over.wait(_KILL_EVERY if self.ended else min(_LOOK_EVERY, seconds / 3)):
            if self.ended:
                self._kill()
                continue
            try:
                at = time.monotonic()
                if at < renew_at:
                    with self.service.database.session() as session:
                        kept = leases.wanted(session, lease)
                else:
                    kept = self.service.database.run(lambda session: leases.renew(session, lease, seconds=seconds))
                    if kept:
                        renew_at, sure_until = at + seconds / 3, at + seconds
                if not kept:
                    self._lost.set()
            except Exception as error:  # a database that is away, whatever its driver says
                log.warning("%s: the lease could not be renewed: %s", self.claimed, type(error).__name__)
                if time.monotonic() > sure_until:
                    self._lost.set()
            if self.ended:
                self._kill()

    def _kill(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
