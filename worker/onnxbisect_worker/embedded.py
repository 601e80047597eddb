"""Everything in one process: celery's worker as a thread over a queue in memory, for `onnx-bisect serve`."""

from threading import Event, Thread
from typing import Any

from celery.worker import state
from celery.worker.worker import WorkController

from onnxbisect.errors import OptionError
from onnxbisect_backends import registry
from onnxbisect_db.workers import Presence
from onnxbisect_worker.app import make_app, queues_of
from onnxbisect_worker.confining import tell_level
from onnxbisect_worker.hosting import Hosts
from onnxbisect_worker.model_client import ModelHosts
from onnxbisect_worker.place import Place
from onnxbisect_worker.presence import Attendance, worker_id
from onnxbisect_worker.reconciling import Reconciler
from onnxbisect_worker.reporting import clear_reports
from onnxbisect_worker.service import Service
from onnxbisect_worker.tasks import install

#: Threads besides those that compile: coordinators, reports, webhooks, models that are read.
_OTHERS = 6
_START_SECONDS = 30.0
_RECONCILER = "embedded"
#: A delivery that there never is.
_NONE = "none"


class Embedded:
    """A worker of all backends, and of everything else, in this process. It starts and stops once.

    The bell of the service must be that of a queue in memory.
    """

    def __init__(self, service: Service, hosts: Hosts | None = None) -> None:
        settings = service.settings
        if settings.redis_url is not None:
            raise OptionError(
                "ONNXBISECT_REDIS_URL is set, so workers are processes of their own: 'onnx-bisect worker'."
            )
        tell_level(settings)
        backends = sorted(registry.available())
        self._place = Place(
            service=service,
            hosts=hosts or ModelHosts(settings, service.files),
            worker=worker_id(),
            backends=backends,
            at_most=settings.slots,
            hands=settings.slots + _OTHERS,
            stopping=Event(),
        )
        app = make_app(settings)
        install(app, lambda: self._place)
        app.set_default()  # threads of celery's pool look for tasks there
        self._ready = Event()
        self._worker: Any = WorkController(
            app=app,
            hostname=f"embedded@{self._place.worker}",
            pool_cls="threads",
            concurrency=settings.slots + _OTHERS,
            queues=queues_of(backends, control=True),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            ready_callback=lambda consumer: self._ready.set(),
        )
        self._thread = Thread(target=self._worker.start, name="worker", daemon=True)
        presence = Presence(id=self._place.worker, backends=tuple(backends), slots=settings.slots)
        self._attendance = Attendance(service, presence)
        # under one name, so that after a crash it does not wait until its own lease has run out
        self._reconciler = Reconciler(service, _RECONCILER)

    def start(self) -> None:
        """Begin; what is to be done is done when this returns, whatever the compilers may take to start."""
        state.should_stop = None
        clear_reports(self._place.service.settings)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise RuntimeError("celery's worker did not start")
        self._attendance.start()
        self._place.service.reserve.keep()
        self._reconciler.start()

    def stop(self) -> None:
        """End compiles and hosts, give back what is in hand, and wait until all of that is done."""
        self._place.stopping.set()
        self._reconciler.stop()
        self._attendance.stop()
        state.should_stop = 0  # type: ignore[assignment] # what a signal sets in a worker that is a process
        while self._thread.is_alive():
            self._place.service.bell.delivery(_NONE)  # or it looks up from its queue only every two seconds
            self._thread.join(0.05)
        state.should_stop = None
        self._place.hosts.close()
        self._place.courier.close()
