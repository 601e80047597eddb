"""The bell over celery's queue."""

import logging
import os
import time
from threading import Lock
from typing import Any

from celery import Celery

from onnxbisect_db.reconcile import SearchBell
from onnxbisect_db.states import Stage
from onnxbisect_worker.app import ADVANCE, CONTROL, DELIVER, PREPARE, PROBE, REPAIR, REPORT, prepare_queue, probe_queue

#: Seconds that a redis which does not answer may cost, and for how long it is then left alone.
_PATIENCE = 1.0
_QUIET = 2.0

_TASKS = {Stage.PREPARE: PREPARE, Stage.SEARCH: ADVANCE, Stage.REPORT: REPORT, Stage.REPAIR: REPAIR}

log = logging.getLogger(__name__)


class CeleryBell:
    """See `bell.Bell`. Threads may share it; after a fork it begins anew."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = Lock()
        self._process = os.getpid()
        self._producer: Any = None
        self._quiet_until = 0.0

    def search(self, bell: SearchBell) -> None:
        """See `Bell.search`."""
        if bell.stage is Stage.OVER:
            return
        queue = prepare_queue(bell.backend) if bell.stage.at_backend else CONTROL
        self._ring(_TASKS[bell.stage], bell.search_id, queue)

    def probes(self, backend: str, count: int) -> None:
        """See `Bell.probes`."""
        for _ in range(count):
            self._ring(PROBE, backend, probe_queue(backend))

    def delivery(self, delivery_id: str) -> None:
        """See `Bell.delivery`."""
        self._ring(DELIVER, delivery_id, CONTROL)

    def _ring(self, task: str, argument: str, queue: str) -> None:
        if self._process != os.getpid():
            self._process, self._lock, self._producer = os.getpid(), Lock(), None
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            try:
                if self._producer is None:
                    self._producer = self._connected()
                self._app.send_task(task, (argument,), queue=queue, producer=self._producer, retry=False)
            except Exception as error:  # whatever the transport raises; the reconciler will ring again
                log.warning("the queue cannot be reached: %s", type(error).__name__)
                self._quiet_until = time.monotonic() + _QUIET
                self._drop()

    def _connected(self) -> Any:
        # a connection of its own, less patient than those that wait for messages
        timeouts: dict[str, Any] = {"max_retries": 0}
        if "socket_timeout" in self._app.conf.broker_transport_options:
            timeouts |= {"socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE}
        connection = self._app.connection_for_write(transport_options=timeouts, connect_timeout=_PATIENCE)
        return self._app.amqp.Producer(connection, auto_declare=False)

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.connection.collect(socket_timeout=_PATIENCE)
            except Exception as error:  # it was broken before
                log.debug("the broken connection could not be closed: %s", type(error).__name__)
