"""A worker as a process of its own: celery's, with a pool of processes that each do one thing at a time.

Processes, since a redis queue and celery's threads have stalled on each other before; and since a model that takes its
host's memory with it, or a bug in a step, then costs one of them.
"""

import logging
import os
import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import Any

from celery import signals
from celery.apps.worker import Worker
from sqlalchemy.exc import SQLAlchemyError

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_db.errors import SchemaError
from onnxbisect_db.workers import Presence
from onnxbisect_worker import logs
from onnxbisect_worker.app import make_app, queues_of
from onnxbisect_worker.celery_bell import CeleryBell
from onnxbisect_worker.child_host import hosts_folder
from onnxbisect_worker.confining import tell_level
from onnxbisect_worker.host_environment import host_environment
from onnxbisect_worker.lifeline import Lifeline
from onnxbisect_worker.model_client import ModelHosts
from onnxbisect_worker.niceness import make_way
from onnxbisect_worker.place import Place
from onnxbisect_worker.presence import Attendance, worker_id
from onnxbisect_worker.reconciling import Reconciler
from onnxbisect_worker.reporting import clear_reports
from onnxbisect_worker.secrecy import keep_secrets
from onnxbisect_worker.service import Service, open_service
from onnxbisect_worker.settings import Settings
from onnxbisect_worker.tasks import Opened, install
from onnxbisect_worker.trunk import Trunk

#: Processes for coordinators and reports in a worker that compiles, too.
_CONTROL_HANDS = 2
#: Who only compiles makes way for coordinators and the API on the same machine: hands wait for what these do.
_NICE = 5
#: What celery may take to end, once nothing is in hand any more.
_STOP_SECONDS = 15.0

log = logging.getLogger(__name__)


def work(settings: Settings, *, backends: Sequence[str] = (), control: bool = False) -> int:
    """Work for these backends, and, `control`, on what needs no compiler, until a signal ends it: then what is in hand
    is given back. Returns the exit code. OptionError and SchemaError before anything starts.
    """
    if settings.redis_url is None:
        raise OptionError(
            "Workers need a queue that they share: set ONNXBISECT_REDIS_URL. 'onnx-bisect serve' alone needs none."
        )
    if not backends and not control:
        raise OptionError("A worker needs something to do: name the backends whose compilers are here, or --control.")
    for backend in backends:
        registry.find(backend)
    keep_secrets()
    logs.configure(settings)
    tell_level(settings)
    app = make_app(settings)
    if not backends:
        # The steps of coordinators are short: the next ring is to be here when one ends. A compile is not.
        app.conf.worker_disable_prefetch = False
    if not control:
        make_way(_NICE)
    service = _opened(settings, app)
    clear_reports(settings)
    trunk = Trunk(host_environment(hosts_folder(settings)))  # imports while celery starts
    name, stopping, lifeline = worker_id(), Event(), Lifeline()
    more = _CONTROL_HANDS if backends and control else 0
    hands = settings.slots + more

    def place() -> Place:
        mine = open_service(settings, CeleryBell(app))
        hosts = ModelHosts(settings, mine.files, trunk=trunk)
        at_most = settings.slots if more else None
        return Place(
            service=mine,
            hosts=hosts,
            worker=name,
            backends=backends,
            at_most=at_most,
            hands=hands,
            stopping=stopping,
        )

    opened = Opened(place)
    install(app, opened)
    _connect(settings, lifeline, stopping, opened)
    presence = Presence(id=name, backends=tuple(sorted(backends)), slots=settings.slots)
    attendance, reconciler = Attendance(service, presence), Reconciler(service, name)
    worker: Any = Worker(
        app=app,
        hostname=f"onnx-bisect@{name}",
        pool_cls="prefork",
        concurrency=hands,
        queues=queues_of(sorted(backends), control=control),
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )

    @signals.worker_ready.connect(weak=False)
    def _ready(**_: Any) -> None:
        attendance.start()
        if control:
            reconciler.start()

    try:
        worker.start()
    finally:
        lifeline.cut()
        reconciler.stop()
        attendance.stop()
        service.close()
        trunk.close()
    return int(worker.exitcode or 0)


def _opened(settings: Settings, app: Any) -> Service:
    service = open_service(settings, CeleryBell(app))
    try:
        current = service.database.is_current()
    except SQLAlchemyError as error:
        raise OptionError(
            f"The database cannot be reached ({type(error).__name__}): is ONNXBISECT_DATABASE_URL right?"
        ) from None
    if not current:
        raise SchemaError("The database has no tables of this version: run 'onnx-bisect migrate' first.")
    return service


def _insist() -> None:
    """Celery waits for ever for a process that was killed while it started. The others give back what they have, and
    end when this one has.
    """
    time.sleep(_STOP_SECONDS)
    log.warning("celery has not ended after %g seconds: it is left", _STOP_SECONDS)
    os._exit(0)


def _connect(settings: Settings, lifeline: Lifeline, stopping: Event, opened: Opened) -> None:
    """Celery's own way of telling what happens to its processes."""

    @signals.setup_logging.connect(weak=False)
    def _log(**_: Any) -> None:
        """Celery leaves logging alone where somebody listens here."""

    @signals.worker_shutting_down.connect(weak=False)
    def _stop(**_: Any) -> None:
        lifeline.cut()
        Thread(target=_insist, name="insist", daemon=True).start()

    @signals.worker_process_init.connect(weak=False)
    def _born(**_: Any) -> None:
        lifeline.hold(stopping, opened.close)

    @signals.worker_process_shutdown.connect(weak=False)
    def _gone(**_: Any) -> None:
        opened.close()
