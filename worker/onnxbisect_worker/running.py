"""All threads of one worker process: slots, webhook senders, the reconciler, and the heartbeat."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from threading import Event, Thread

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_db import culprit_checks, notices, retention
from onnxbisect_db.reconcile import leave, reconcile
from onnxbisect_db.workers import Presence
from onnxbisect_service.service import Service
from onnxbisect_worker.claiming import WorkClaimer
from onnxbisect_worker.context import DATABASE_AWAY, Slots, WorkerContext
from onnxbisect_worker.delivering import next_delivery
from onnxbisect_worker.model_processes.confinement import tell_level
from onnxbisect_worker.model_processes.pool import ModelPool
from onnxbisect_worker.model_requests.protocol import Pool
from onnxbisect_worker.presence import Heartbeat, worker_id

_SWEEP_SECONDS = 3600.0
_CLEAR_SECONDS = 30.0
#: Seconds between checks for compiler versions that have not compiled known culprits.
_ASK_SECONDS = 10.0
#: Seconds before the first cleanup, so that it does not slow the start.
_FIRST_SWEEP = 60.0

log = logging.getLogger(__name__)


class Reconciler:
    """A thread that reconciles until it is stopped; errors do not end it."""

    def __init__(self, service: Service, holder: str) -> None:
        self._service = service
        self._holder = holder
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        """Start, with a first round at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current round, and release the lease for the next one."""
        self._stopping.set()
        if not self._thread.is_alive():
            return
        self._thread.join()
        try:
            leave(self._service.database, self._holder)
        except Exception as error:  # the next one begins when the lease has expired
            log.warning("the database cannot be told that this process no longer reconciles: %s", type(error).__name__)

    def _run(self) -> None:
        start = time.monotonic()
        beside = {self._ask_again: _ASK_SECONDS, self._clear: _CLEAR_SECONDS, self._sweep: _SWEEP_SECONDS}
        due = {self._ask_again: start, self._clear: start + _FIRST_SWEEP, self._sweep: start + _FIRST_SWEEP}
        while True:
            if self._tried(lambda: reconcile(self._service.database, self._holder)):
                for task, seconds in beside.items():
                    if time.monotonic() >= due[task]:
                        due[task] = time.monotonic() + seconds
                        self._tried(task)
            if self._stopping.wait(self._service.settings.reconcile_seconds):
                return

    def _tried(self, task: Callable[[], object]) -> object:
        """The result of the task; None if it failed, as it is repeated later."""
        try:
            return task()
        except Exception as error:
            away = isinstance(error, DATABASE_AWAY)
            log.warning("reconciling failed: %s", type(error).__name__, exc_info=not away)
            return None

    def _ask_again(self) -> None:
        if made := culprit_checks.ask_again(self._service.database, self._service.files):
            log.info("asked again about culprits: %d jobs", made)

    def _clear(self) -> None:
        retention.clear(self._service.database, self._service.files)
        self._service.reserve.keep()

    def _sweep(self) -> None:
        settings = self._service.settings
        kept = retention.Retention(jobs=settings.keep_jobs, models=settings.keep_models)
        gone = retention.sweep(self._service.database, self._service.files, kept)
        self._service.files.clear_unfinished(older_than=24 * 3600)
        log.info("swept: %d files that nobody needs", gone)


#: Threads that send webhooks, separate from slots because receivers may be slow.
_SENDERS = 8
#: Seconds for giving back claimed work; a message in transit is sent again.
_STOP_SECONDS = 8.0
_SEND_SECONDS = 4.0
#: Slots of an embedded worker for coordinators, reports and reading models.
_BESIDE = 6


class Running:
    """A worker for these backends and, if `control`, for work without a compiler. It starts and stops once.

    It compiles as many probes at a time as `Settings.slots`, and has `beside` further slots for everything else.
    """

    def __init__(
        self,
        service: Service,
        pool: Pool,
        backends: Sequence[str],
        *,
        control: bool,
        beside: int = 0,
        reconciler: str | None = None,
    ) -> None:
        """`reconciler` is the name under which it reconciles, if not its own."""
        slots = service.settings.slots + beside
        self._context = WorkerContext(service=service, pool=pool, worker=worker_id(), backends=backends, slots=slots)
        self._claiming = WorkClaimer(self._context, control=control, probes=service.settings.slots)
        #: The topics that it must be notified of.
        self.topics = {*map(notices.backend, backends)} | ({notices.CONTROL, notices.WEBHOOKS} if control else set())
        self._slots = Slots("slot", slots, self._claiming)
        self._senders = Slots("webhooks", _SENDERS if control else 0, lambda: next_delivery(service))
        presence = Presence(id=self._context.worker, backends=tuple(sorted(backends)), slots=service.settings.slots)
        self._heartbeat = Heartbeat(service, presence)
        self._reconciler = Reconciler(service, reconciler or self._context.worker) if control else None

    @property
    def worker(self) -> str:
        """Its name."""
        return self._context.worker

    def start(self) -> None:
        """Start; the worker claims when this returns, however long its compilers take to start."""
        self._context.service.database.listen(self.wake)
        self._slots.start()
        self._senders.start()
        self._heartbeat.start()
        self._context.service.reserve.keep()
        if self._reconciler is not None:
            self._reconciler.start()

    def wake(self, topics: Collection[str]) -> None:
        """Look at once for work of these topics."""
        if self.topics.intersection(topics) - {notices.WEBHOOKS}:
            self._slots.wake()
        if notices.WEBHOOKS in topics:
            self._senders.wake()

    def begin_to_stop(self) -> None:
        """Claim nothing more, and give back claimed work. It does not block, so signal handlers may call it."""
        self._context.stopping.set()

    def stop(self) -> None:
        """End compiles and model processes, give back claimed work, and wait until that is done."""
        self.begin_to_stop()
        if self._reconciler is not None:
            self._reconciler.stop()
        self._slots.stop(_STOP_SECONDS)
        self._senders.stop(_SEND_SECONDS)
        self._heartbeat.stop()
        self._context.pool.close()


def embedded(service: Service) -> Running:
    """A worker for all backends and all other work, in the process of `onnx-bisect serve`, not yet started.

    OptionError if redis is set, because workers are then separate processes.
    """
    settings = service.settings
    if settings.redis_url is not None:
        raise OptionError("ONNXBISECT_REDIS_URL is set, so workers are processes of their own: 'onnx-bisect worker'.")
    tell_level(settings)
    return Running(
        service,
        ModelPool(settings, service.files),
        sorted(registry.available()),
        control=True,
        beside=_BESIDE,
        # a fixed name, so that after a crash it need not wait until its own lease has expired
        reconciler="embedded",
    )
