"""Notifies workers on other machines over redis that there may be work: one Celery queue per topic."""

import logging
import time
from collections.abc import Callable, Collection
from functools import cache
from threading import Lock
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from onnxbisect_service.settings import Settings

#: Seconds to wait for redis, and seconds without attempts after it did not answer.
_PATIENCE = 1.0
_QUIET = 2.0
_WAKE = "onnxbisect.wake"

log = logging.getLogger(__name__)


def make_app(settings: Settings, topics: Collection[str] = ()) -> Celery:
    """Celery with the redis of the settings. A worker consumes the queues of `topics` (`install`)."""
    app = Celery("onnxbisect", broker=settings.broker, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_queues=[_queue(topic) for topic in topics],
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        # matters only for late acknowledgement, which is not used; without it celery warns at each lost connection
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "global_keyprefix": "onnxbisect:",
            "health_check_interval": 25,
            "socket_keepalive": True,
            "socket_connect_timeout": 5,
            "socket_timeout": 60,
            "ack_emulation": False,  # received messages need no acknowledgement
        },
    )
    return app


@cache
def _queue(topic: str) -> Queue:
    """A fanout queue: every worker with the topic gets every message, and messages nobody receives are dropped."""
    name = f"{_WAKE}.{topic}"
    return Queue(name, exchange=Exchange(name, type="fanout", durable=False), durable=False, no_ack=True)


def install(app: Celery, wake: Callable[[Collection[str]], None]) -> None:
    """Register the task that receives other processes' notifications."""

    def heard(topic: str) -> None:
        wake([topic])

    app.task(name=_WAKE, shared=False)(heard)  # registered in this app only


class CeleryNotifier:
    """Sends notifications to the workers with their topics. It never raises: without redis, workers poll within two
    seconds.

    Threads may share it.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = Lock()
        self._producer: Any = None
        self._quiet_until = 0.0

    def __call__(self, topics: Collection[str]) -> None:
        """Notify the workers with these topics; `Database.listen` takes this as its callback."""
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            try:
                if self._producer is None:
                    # a separate connection with short timeouts, unlike those that wait for messages
                    timeouts = {"max_retries": 0, "socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE}
                    connection = self._app.connection_for_write(transport_options=timeouts, connect_timeout=_PATIENCE)
                    self._producer = self._app.amqp.Producer(connection, auto_declare=False)
                for topic in sorted(topics):
                    queue = _queue(topic)
                    self._app.send_task(
                        _WAKE,
                        (topic,),
                        queue=queue,  # type: ignore[arg-type] # celery accepts an unknown queue only as an object
                        producer=self._producer,
                        declare=[queue.exchange],
                        retry=False,
                    )
            except Exception as error:  # the transport may raise anything
                log.warning("the queue cannot be reached: %s", type(error).__name__)
                self._quiet_until = time.monotonic() + _QUIET
                producer, self._producer = self._producer, None
                if producer is not None:
                    try:
                        producer.connection.collect(socket_timeout=_PATIENCE)
                    except Exception as error:  # closing a broken connection may fail
                        log.debug("the broken connection could not be closed: %s", type(error).__name__)
