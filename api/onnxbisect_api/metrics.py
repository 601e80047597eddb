"""Prometheus metrics: this process's requests, and the state of the service from the database."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxbisect_db import gauges
from onnxbisect_db.database import Database

_BUCKETS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600)
Labels = TypeVar("Labels", bound=tuple[str, ...])
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"})


class Metrics:
    """The metrics of one application; `GET /metrics` shows those in `registry`."""

    def __init__(self, database: Database) -> None:
        self._reading = asyncio.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(_ServiceCollector(database))
        self.seconds = Histogram(
            "onnxbisect_http_seconds",
            "Seconds until the answer to a request began; routes are without /v1",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self.registry,
        )

    async def text(self) -> bytes:
        """All values, as Prometheus reads them. One request at a time reads them, because that takes a while."""
        async with self._reading:
            return await run_in_threadpool(generate_latest, self.registry)


class MeasuredRequests:
    """Middleware that counts and times requests by route. Unknown paths count as one, to limit the number of series."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                measured = self._metrics.seconds.labels(method, route, str(message["status"]))
                measured.observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, sent if scope["type"] == "http" else send)


class _ServiceCollector(Collector):
    """Reads the database for each scrape, so that every process reports the same values."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> list[Metric]:
        """No metrics; if this method were missing, registration would call `collect`, which reads the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._database.session() as session:
            found = gauges.read(session)
        yield _by("jobs", "Jobs", ["state"], {(state,): count for state, count in found.jobs.items()})
        yield _by("searches", "Searches that are not over", ["backend", "stage"], found.searches)
        lengths = {
            (backend, state): getattr(length, state)
            for backend, length in found.probes.items()
            for state in ("queued", "running")
        }
        yield _by("probes", "Probes that wait or run", ["backend", "state"], lengths)
        oldest = {(backend,): seconds for backend, seconds in found.oldest.items()}
        yield _by("queue_age_seconds", "How long the oldest probe has waited", ["backend"], oldest)
        slots = {(backend,): count for backend, count in found.slots.items()}
        yield _by("slots", "Compiles that living workers can run at a time", ["backend"], slots)
        yield _by("workers", "Workers that are alive", [], {(): found.workers})
        yield _by("lease_overdue_seconds", "How long the oldest lease has run out for", [], {(): found.overdue})
        deliveries = {(state,): count for state, count in found.deliveries.items()}
        yield _by("deliveries", "Webhook messages", ["state"], deliveries)
        ends = {("failing",): found.failing, ("disabled",): found.disabled}
        yield _by("webhooks", "Webhooks that take nothing", ["state"], ends)
        if found.unreconciled is not None:
            lag = {(): found.unreconciled}
            yield _by("reconciler_lag_seconds", "How long ago the reconciler was seen", [], lag)


def _by(name: str, says: str, labels: list[str], values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(f"onnxbisect_{name}", says, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
