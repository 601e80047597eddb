"""What celery calls. A task is told an id, and does a step that finds everything else in the database."""

import threading
from collections.abc import Callable

from celery import Celery

from onnxbisect_worker.app import ADVANCE, DELIVER, PREPARE, PROBE, REPAIR, REPORT
from onnxbisect_worker.asking import probes_in_turn
from onnxbisect_worker.coordinating import advance as advance_search
from onnxbisect_worker.place import Place
from onnxbisect_worker.preparing import prepare as prepare_search
from onnxbisect_worker.repairing import repair as repair_model
from onnxbisect_worker.reporting import write_report


def install(app: Celery, place: Callable[[], Place]) -> None:
    """Give the queue its tasks; each asks for the place of its process when it begins."""

    def prepare(search_id: str) -> None:
        prepare_search(place(), search_id)

    def probe(backend: str) -> None:
        probes_in_turn(place(), backend)

    def advance(search_id: str) -> None:
        advance_search(place(), search_id)

    def report(search_id: str) -> None:
        write_report(place(), search_id)

    def repair(search_id: str) -> None:
        repair_model(place(), search_id)

    def deliver(delivery_id: str) -> None:
        here = place()
        here.courier.send(here.service, delivery_id)

    named = {PREPARE: prepare, PROBE: probe, ADVANCE: advance, REPORT: report, REPAIR: repair, DELIVER: deliver}
    for name, step in named.items():
        app.task(name=name, shared=False)(step)  # of this app alone, not of all that come after it


class Opened:
    """The place of a process, opened when it is first needed: connections do not survive a fork."""

    def __init__(self, make: Callable[[], Place]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._place: Place | None = None

    def __call__(self) -> Place:
        """The place, opened now if it was not."""
        with self._lock:
            if self._place is None:
                self._place = self._make()
            return self._place

    def close(self) -> None:
        """End the hosts of this process, and let go of the database."""
        with self._lock:
            place, self._place = self._place, None
        if place is not None:
            place.stopping.set()
            place.hosts.close()
            place.courier.close()
            place.service.close()
