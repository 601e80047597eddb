"""The message queue as celery has it: names of queues and tasks, and what both sides of it are told.

Messages only ring: the database knows what there is to do, and what was dropped is rung for again. So they are taken
off the queue as soon as somebody has them (`task_acks_late` would bring back what the reconciler brings back anyway),
and nothing depends on how long redis thinks that a task may take.
"""

from typing import Any

from celery import Celery

from onnxbisect_worker.settings import Settings

PREPARE = "onnxbisect.prepare"
PROBE = "onnxbisect.probe"
ADVANCE = "onnxbisect.advance"
REPORT = "onnxbisect.report"
REPAIR = "onnxbisect.repair"
DELIVER = "onnxbisect.deliver"

#: Where coordinators, reports and webhooks are rung for.
CONTROL = "control"

#: Seconds between two looks at a queue in memory.
_POLL_MEMORY = 0.02


def prepare_queue(backend: str) -> str:
    """Where workers of the backend are rung for to read models. A queue of its own, so that a new job does not wait
    behind all the probes of the others: workers look at their queues in turn.
    """
    return f"prepare.{backend}"


def probe_queue(backend: str) -> str:
    """Where workers of the backend are rung for to take probes."""
    return f"probe.{backend}"


def queues_of(backends: list[str], *, control: bool) -> list[str]:
    """What such a worker listens to."""
    found = [CONTROL] if control else []
    for backend in backends:
        found += [prepare_queue(backend), probe_queue(backend)]
    return found


def make_app(settings: Settings) -> Celery:
    """The queue that the settings name. It has no tasks yet: who only rings needs none (`tasks.install`)."""
    # "memory://" alone would make kombu warn that it has no host name
    broker = "memory://localhost/" if settings.redis_url is None else settings.broker
    app = Celery("onnxbisect", broker=broker, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_create_missing_queues=True,
        # a last resort: hosts and compilers have limits of their own
        task_time_limit=2 * settings.model_seconds + settings.compile_seconds + 600,
        worker_prefetch_multiplier=1,
        worker_max_memory_per_child=2_000_000,  # kB
        worker_proc_alive_timeout=60,  # of a process that starts on a busy machine
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        # only for tasks that are acknowledged late, of which there are none; without it celery warns at each loss
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=_transport(settings),
    )
    if settings.redis_url is not None:
        app.conf.worker_disable_prefetch = True  # a ring for a busy worker is for another one
    return app


def _transport(settings: Settings) -> dict[str, Any]:
    if settings.redis_url is None:
        return {"polling_interval": _POLL_MEMORY}
    return {
        "global_keyprefix": "onnxbisect:",
        "health_check_interval": 25,
        "socket_keepalive": True,
        "socket_connect_timeout": 5,
        "socket_timeout": 60,
        "queue_order_strategy": "round_robin",
        # A ring is over when it is heard. Two more ways to redis for each would note who has it; and where one of them
        # failed, since redis was just away, the ring would count as in hand for ever, and its worker hear no other one.
        "ack_emulation": False,
    }
