"""The state of the service: whether this process can answer requests, and Prometheus metrics.

Their addresses have no `/v1`: orchestrators and Prometheus expect them there.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import redis
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxbisect.errors import shortage
from onnxbisect_api.access import Operator
from onnxbisect_api.errors.problems import Problem
from onnxbisect_db import gauges
from onnxbisect_db.database import Database
from onnxbisect_service.service import Service
from onnxbisect_service.settings import Settings

#: Seconds for which a result is kept.
_FRESH = 2.0
#: Seconds for all checks, which run at the same time, and for one attempt to reach redis.
_LONGEST, _PATIENCE = 4.0, 2.0
_OTHER_TABLES = "The database's tables are not those of this version: run `onnx-bisect migrate`."
_NO_QUEUE = "The queue (redis) cannot be reached: work goes on, slowly, when it can be again."
_NO_FILES = "The file store cannot be reached: models cannot be taken, nor reports be given."
#: Free bytes that the smallest transaction needs.
_SOME = 64 << 10


class Readiness:
    """The checks of one application. Not thread-safe: use it in the event loop."""

    def __init__(self, service: Service) -> None:
        #: Each with the sentence for the case that it raises an error or does not end in time.
        self._checks: tuple[tuple[Callable[[], str | None], str], ...] = (
            (lambda: None if service.database.is_current() else _OTHER_TABLES, "The database cannot be reached."),
            (lambda: _ask_queue(service.settings), _NO_QUEUE),
            (lambda: disk(service), "The data folder does not answer."),
            (service.files.check, _NO_FILES),
        )
        self._threads = ThreadPoolExecutor(len(self._checks), thread_name_prefix="readiness")
        self._checking = asyncio.Lock()
        self._found: list[str] = []
        self._fresh_until = 0.0

    async def complaints(self) -> list[str]:
        """Sentences about failed checks, without secrets; empty if the process is ready."""
        async with self._checking:
            if time.monotonic() >= self._fresh_until:
                found = await asyncio.gather(*(self._answer(check, failed) for check, failed in self._checks))
                self._found = [complaint for complaint in found if complaint is not None]
                self._fresh_until = time.monotonic() + _FRESH
            return self._found

    async def _answer(self, check: Callable[[], str | None], failed: str) -> str | None:
        try:
            async with asyncio.timeout(_LONGEST):
                return await asyncio.get_running_loop().run_in_executor(self._threads, check)
        except Exception:  # an error's message can contain addresses and user names
            return failed


def disk(service: Service) -> str | None:
    """A sentence if the folders of uploads or of SQLite cannot be written to, else None."""
    folders = {service.settings.data, *map(Path, filter(None, [service.database.file]))}
    try:
        for folder in folders:
            with tempfile.TemporaryFile(dir=folder if folder.is_dir() else folder.parent, buffering=0) as file:
                file.write(bytes(_SOME))
    except OSError as error:
        why = shortage(error) or f"The data folder cannot be written ({error.strerror})."
        return f"{why} What is there can be read and deleted, and nothing else is done until there is room."
    return None


def _ask_queue(settings: Settings) -> None:
    if settings.redis_url is not None:
        # celery has a URL scheme of its own for sockets
        url = settings.redis_url.get_secret_value().replace("redis+socket://", "unix://", 1)
        with redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE) as client:
            client.ping()


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


router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """The process is healthy."""

    status: str = "ok"


@router.get("/livez", summary="Liveness of the process")
async def get_liveness() -> HealthView:
    """Succeeds whenever the process answers. Nothing else is checked, because a restart would repair nothing else."""
    return HealthView()


@router.get("/readyz", summary="Readiness for requests")
async def get_readiness(request: Request) -> HealthView:
    """Checks the database with this version's tables, the queue, the file store, and that the disk can be written to.

    A 503 names what fails. The answer may be two seconds old.
    """
    readiness: Readiness = request.app.state.readiness
    wrong = await readiness.complaints()
    if wrong:
        raise Problem(503, " ".join(wrong), {"Retry-After": "5"})
    return HealthView()


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def get_metrics(request: Request, caller: Operator) -> PlainTextResponse:
    """Of the whole service, so for a token with the scope `operator`, which is made on the server. They contain no
    tenants, models or labels.
    """
    metrics: Metrics = request.app.state.metrics
    return PlainTextResponse(await metrics.text(), media_type=CONTENT_TYPE_LATEST)
