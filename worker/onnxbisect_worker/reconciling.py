"""The loop that recovers dropped work, in every worker with --control; one of them at a time runs it."""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from onnxbisect_db import culprit_checks, retention
from onnxbisect_db.reconcile import leave, reconcile
from onnxbisect_db.retention import Retention
from onnxbisect_service.service import Service
from onnxbisect_worker.outside import DATABASE_AWAY

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
        kept = Retention(jobs=settings.keep_jobs, models=settings.keep_models)
        gone = retention.sweep(self._service.database, self._service.files, kept)
        self._service.files.clear_unfinished(older_than=24 * 3600)
        log.info("swept: %d files that nobody needs", gone)
