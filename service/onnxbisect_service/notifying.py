"""Tells workers on other machines over redis, by a celery task that goes to all of them, that there may be work."""

import logging
import time
from collections.abc import Callable, Collection
from threading import Lock
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from onnxbisect_service.settings import Settings

#: Seconds that a redis which does not answer may cost, and for how long it is then left alone.
_PATIENCE = 1.0
_QUIET = 2.0
_WAKE = "onnxbisect.wake"

#: Every worker hears every message, and a message that no worker hears is gone: none pile up while no worker is there.
_EXCHANGE = Exchange(_WAKE, type="fanout", durable=False)

log = logging.getLogger(__name__)


def make_app(settings: Settings) -> Celery:
    """Celery over the redis that the settings name. A worker gives it the task (`install`)."""
    app = Celery("onnxbisect", broker=settings.broker, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_queues=[Queue(_WAKE, exchange=_EXCHANGE, durable=False, no_ack=True)],
        task_default_queue=_WAKE,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        # only for tasks that are acknowledged late, of which there are none; without it celery warns at each loss
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "global_keyprefix": "onnxbisect:",
            "health_check_interval": 25,
            "socket_keepalive": True,
            "socket_connect_timeout": 5,
            "socket_timeout": 60,
            "ack_emulation": False,  # what was heard is over
        },
    )
    return app


def install(app: Celery, wake: Callable[[Collection[str]], None]) -> None:
    """Have this process hear what others notify of."""

    def heard(topics: list[str]) -> None:
        wake(topics)

    app.task(name=_WAKE, shared=False)(heard)  # of this app alone, not of all that come after it


class CeleryNotifier:
    """Sends what was notified of to all workers. It never raises: where redis is away, workers look by themselves
    within two seconds. Threads may share it.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = Lock()
        self._producer: Any = None
        self._quiet_until = 0.0

    def __call__(self, topics: Collection[str]) -> None:
        """For `Database.listen`."""
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            try:
                if self._producer is None:
                    self._producer = self._connected()
                self._app.send_task(
                    _WAKE, (sorted(topics),), queue=_WAKE, producer=self._producer, declare=[_EXCHANGE], retry=False
                )
            except Exception as error:  # whatever the transport raises
                log.warning("the queue cannot be reached: %s", type(error).__name__)
                self._quiet_until = time.monotonic() + _QUIET
                self._drop()

    def _connected(self) -> Any:
        # a connection of its own, less patient than those that wait for messages
        timeouts = {"max_retries": 0, "socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE}
        connection = self._app.connection_for_write(transport_options=timeouts, connect_timeout=_PATIENCE)
        return self._app.amqp.Producer(connection, auto_declare=False)

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.connection.collect(socket_timeout=_PATIENCE)
            except Exception as error:  # it was broken before
                log.debug("the broken connection could not be closed: %s", type(error).__name__)
