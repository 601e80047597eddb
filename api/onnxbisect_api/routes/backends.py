"""Compilers, and the workers that have them."""

from datetime import datetime
from functools import cache

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect_api.access import Admin, Reader
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import BackendName, RowView, TheService
from onnxbisect_backends import registry
from onnxbisect_db import queues, workers


class OptionView(RowView):
    """An option that a target's `options` may contain."""

    name: str
    default: str
    choices: list[str] = Field(description="values that it takes; none where any goes")
    help: str
    local: bool = Field(description="names something of the worker's machine: takes nothing but its choices here")


class BackendWorkerView(BaseModel):
    """A worker, as one backend sees it."""

    id: str
    takes: bool = Field(description="whether it takes probes of this backend")
    usable: bool | None = Field(description="whether the tool works there; null until the worker has seen")
    says: str = Field(description="the tool and its version, or why it cannot be used there")
    isolation: str | None = Field(
        description="`namespaces`: compiles, and what reads models, see a part of that machine only; `none`; null "
        "until the worker has seen"
    )


class BackendView(BaseModel):
    """One compiler. Jobs for a backend that no worker has wait until one comes."""

    name: str
    summary: str
    problem: str = Field(description="why it cannot be loaded here; workers may have it all the same")
    options: list[OptionView]
    workers: list[BackendWorkerView]
    queued: int = Field(description="probes that wait")
    running: int = Field(description="probes that are being compiled")
    at_most: int | None = Field(description="how many may run at a time, such as the seats of a licence")

    @property
    def usable(self) -> bool:
        """Whether a live worker with a working tool compiles probes for this backend now."""
        return any(worker.takes and worker.usable is not False for worker in self.workers)


class WorkerView(RowView):
    """A worker process, as of its last heartbeat."""

    id: str
    alive: bool
    backends: list[str]
    tools: dict[str, str] = Field(description="by backend, the tool and its version, or why it cannot be used there")
    unusable: list[str] = Field(description="backends whose tool does not work there")
    slots: int = Field(description="compiles that it runs at a time")
    busy: int = Field(description="probes that it has claimed")
    started_at: datetime
    seen_at: datetime


def worker_views(session: Session) -> list[WorkerView]:
    """All workers seen within a day."""
    since, busy = workers.alive_since(session), workers.busy(session)
    return [
        WorkerView.of_row(worker, alive=worker.seen_at > since, busy=busy.get(worker.id, 0))
        for worker in workers.list_all(session)
    ]


def backend_views(session: Session) -> list[BackendView]:
    """The backends installed here, those of workers, and those with waiting work."""
    since = workers.alive_since(session)
    living = [worker for worker in workers.list_all(session) if worker.seen_at > since]
    lengths, limits = queues.lengths(session), queues.limits(session)
    known = _installed()
    reported = {name for worker in living for name in (*worker.backends, *worker.tools)}
    views = []
    for name in sorted({*known, *reported, *lengths, *limits}):
        backend, length = known.get(name), lengths.get(name, queues.Length(queued=0, running=0))
        options = backend.options if isinstance(backend, registry.LoadedBackend) else ()
        having = [
            BackendWorkerView(
                id=worker.id,
                takes=name in worker.backends,
                usable=name not in worker.unusable if name in worker.tools else None,
                says=worker.tools.get(name, ""),
                isolation=worker.isolation.get(name),
            )
            for worker in living
            if name in worker.backends or name in worker.tools
        ]
        views.append(
            BackendView(
                name=name,
                summary=backend.summary if isinstance(backend, registry.LoadedBackend) else "",
                problem=backend.reason if isinstance(backend, registry.BrokenBackend) else "",
                options=[OptionView.of_row(option) for option in options],
                workers=having,
                queued=length.queued,
                running=length.running,
                at_most=limits.get(name),
            )
        )
    return views


#: The backends installed here, cached: looking takes a second, and packages do not change in a running process.
_installed = cache(registry.available)


router = APIRouter(tags=["backends"])


class BackendChange(BaseModel):
    """The settings that an admin can change."""

    model_config = ConfigDict(extra="forbid")

    at_most: int | None = Field(ge=0, le=100_000, description="null for no bound, 0 to pause it")


@router.get("/backends", summary="List compilers")
def list_backends(service: TheService, caller: Reader) -> list[BackendView]:
    """The list has the backends installed on the API's machine, those of workers, and those with waiting work."""
    with service.database.session() as session:
        return backend_views(session)


@router.patch("/backends/{name}", summary="Limit the concurrent probes of a compiler")
def change_backend(name: BackendName, wanted: BackendChange, service: TheService, caller: Admin) -> BackendView:
    """The limit applies to all tenants. Probes that are running continue."""
    with service.database.session() as session:
        if name not in {view.name for view in backend_views(session)}:
            raise missing(english("backend"))
    service.database.run(lambda session: queues.limit(session, name, wanted.at_most))
    with service.database.session() as session:
        return next(view for view in backend_views(session) if view.name == name)


@router.get("/workers", summary="List worker processes")
def list_workers(service: TheService, caller: Reader) -> list[WorkerView]:
    """The list has all workers that sent a heartbeat within a day."""
    with service.database.session() as session:
        return worker_views(session)
