"""The loop that picks up what was dropped, in every process that has hands for it. One of them at a time does it."""

import logging
import time
from threading import Event, Thread

from onnxbisect_db import culprit_checks, leases, retention
from onnxbisect_db.reconcile import leave, reconcile
from onnxbisect_db.retention import Retention
from onnxbisect_service.service import Service

_SWEEP_SECONDS = 3600.0
_CLEAR_SECONDS = 30.0
#: How often it is looked whether workers have versions that were not asked about known culprits.
_ASK_SECONDS = 10.0
#: Not while everything starts.
_FIRST_SWEEP = 60.0

log = logging.getLogger(__name__)


class Reconciler:
    """A thread that reconciles until it is stopped. Nothing that goes wrong ends it."""

    def __init__(self, service: Service, holder: str) -> None:
        self._service = service
        self._holder = holder
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        """Begin, with a first round at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is going on, and leave it to the next one: after a restart that is this service."""
        self._stopping.set()
        if not self._thread.is_alive():
            return
        self._thread.join()
        try:
            leave(self._service.database, self._holder)
        except Exception as error:  # then the next one begins when the lease has run out
            log.warning("the database cannot be told that this process no longer reconciles: %s", type(error).__name__)

    def _run(self) -> None:
        sweep_at = clear_at = time.monotonic() + _FIRST_SWEEP
        ask_at = time.monotonic()
        while True:
            reconciles = self._round()
            if reconciles and time.monotonic() >= ask_at:
                ask_at = time.monotonic() + _ASK_SECONDS
                self._ask_again()
            if reconciles and time.monotonic() >= clear_at:
                clear_at = time.monotonic() + _CLEAR_SECONDS
                self._clear()
            if time.monotonic() >= sweep_at:
                sweep_at = time.monotonic() + _SWEEP_SECONDS
                self._sweep()
            if self._stopping.wait(self._service.settings.reconcile_seconds):
                return

    def _round(self) -> bool:
        """Whether this is the one that reconciles."""
        try:
            return reconcile(self._service.database, self._holder)
        except Exception as error:  # most likely the database is away, and comes back
            log.warning("reconciling failed: %s", type(error).__name__, exc_info=log.isEnabledFor(logging.DEBUG))
            return False

    def _clear(self) -> None:
        try:
            retention.clear(self._service.database, self._service.files)
            self._service.reserve.keep()
        except Exception as error:  # as above
            log.warning("deleted files were not cleared away: %s", type(error).__name__, exc_info=True)

    def _ask_again(self) -> None:
        try:
            if made := culprit_checks.ask_again(self._service.database, self._service.files):
                log.info("asked again about culprits: %d jobs", made)
        except Exception as error:  # as above
            log.warning("culprits were not asked about again: %s", type(error).__name__, exc_info=True)

    def _sweep(self) -> None:
        settings, database = self._service.settings, self._service.database
        try:
            if not database.run(lambda session: leases.take(session, "sweep", self._holder, seconds=_SWEEP_SECONDS)):
                return
            kept = Retention(jobs=settings.keep_jobs, models=settings.keep_models)
            gone = retention.sweep(database, self._service.files, kept)
            self._service.files.clear_unfinished(older_than=24 * 3600)
            log.info("swept: %d files that nobody needs", gone)
        except Exception as error:  # as above
            log.warning("sweeping failed: %s", type(error).__name__, exc_info=True)
