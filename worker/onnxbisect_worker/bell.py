"""Telling the queue that there is something to do. What was told may be lost: the reconciler tells it again."""

from typing import Protocol

from onnxbisect_db.reconcile import Bells, SearchBell


class Bell(Protocol):
    """Rings for work. It never raises: where the queue is down, the work waits until it is rung for again."""

    def search(self, bell: SearchBell) -> None:
        """Somebody is to take a turn of the search, at its stage."""

    def probes(self, backend: str, count: int) -> None:
        """So many workers of the backend are to look for a probe."""

    def delivery(self, delivery_id: str) -> None:
        """Somebody is to send the webhook's message."""


def ring_all(bell: Bell, bells: Bells) -> None:
    """Ring what the reconciler says."""
    for search in bells.searches:
        bell.search(search)
    for backend, count in bells.probes.items():
        bell.probes(backend, count)
    for delivery_id in bells.deliveries:
        bell.delivery(delivery_id)


class SilentBell:
    """Remembers what it was told and rings nowhere: for tests, and for programs that leave it to the reconciler."""

    def __init__(self) -> None:
        self.searches: list[SearchBell] = []
        self.backends: list[tuple[str, int]] = []
        self.deliveries: list[str] = []

    def search(self, bell: SearchBell) -> None:
        """See `Bell.search`."""
        self.searches.append(bell)

    def probes(self, backend: str, count: int) -> None:
        """See `Bell.probes`."""
        self.backends.append((backend, count))

    def delivery(self, delivery_id: str) -> None:
        """See `Bell.delivery`."""
        self.deliveries.append(delivery_id)
