"""A worker as a process of its own. Its slots are threads: models are only read in child processes.

Celery receives notifications over redis and handles signals.
"""

import gc
import signal
import sys
from collections.abc import Sequence
from typing import Any

from celery import signals
from sqlalchemy.exc import SQLAlchemyError

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_db.errors import SchemaError
from onnxbisect_service import logs
from onnxbisect_service.notifying import install, make_app
from onnxbisect_service.service import Service, open_service
from onnxbisect_service.settings import Settings, keep_secrets
from onnxbisect_worker.model_processes.confinement import tell_level
from onnxbisect_worker.model_processes.pool import ModelPool
from onnxbisect_worker.running import Running

#: Slots for coordinators and reports in a worker that also compiles.
_CONTROL_SLOTS = 2


def work(settings: Settings, *, backends: Sequence[str] = (), control: bool = False) -> int:
    """Work for these backends and, if `control`, without a compiler, until a signal; claimed work is then given back.

    Returns the exit code. OptionError and SchemaError are raised before anything starts.
    """
    if settings.redis_url is None:
        raise OptionError(
            "Workers need a queue that they share: set ONNXBISECT_REDIS_URL. 'onnx-bisect serve' alone needs none."
        )
    if not backends and not control:
        raise OptionError("A worker needs something to do: name the backends whose compilers are here, or --control.")
    registry.check_own_folder()
    for backend in backends:
        registry.find(backend)
    keep_secrets()
    logs.configure(settings)
    tell_level(settings)
    service = _opened(settings)
    beside = _CONTROL_SLOTS if backends and control else 0
    running = Running(service, ModelPool(settings, service.files), backends, control=control, beside=beside)
    app = make_app(settings, sorted(running.topics))
    install(app, running.wake)

    @signals.setup_logging.connect(weak=False)
    def _log(**_: Any) -> None:
        """A receiver of this signal keeps Celery from configuring logging."""

    @signals.celeryd_after_setup.connect(weak=False)
    def _start(**_: Any) -> None:
        running.start()  # works without redis

    @signals.worker_shutting_down.connect(weak=False)
    def _stop(**_: Any) -> None:
        running.begin_to_stop()  # before celery's own shutdown

    worker = app.Worker(
        hostname=f"onnx-bisect@{running.worker}",
        pool_cls="threads",
        concurrency=1,  # celery only wakes slots
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # until celery installs its handler
    gc.collect()
    gc.freeze()  # a full collection would stop all slots for a tenth of a second
    try:
        worker.start()
    finally:
        running.stop()
        service.close()
    return int(worker.exitcode or 0)


def _opened(settings: Settings) -> Service:
    service = open_service(settings)
    try:
        current = service.database.is_current()
    except SQLAlchemyError as error:
        raise OptionError(
            f"The database cannot be reached ({type(error).__name__}): is ONNXBISECT_DATABASE_URL right?"
        ) from None
    if not current:
        raise SchemaError("The database has no tables of this version: run 'onnx-bisect migrate' first.")
    return service
