"""Compilers that can be asked, and the workers that have them."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from onnxbisect_api.access import Admin, Reader
from onnxbisect_api.job_request import BackendName
from onnxbisect_api.problems import missing
from onnxbisect_api.service import TheService
from onnxbisect_backends import registry
from onnxbisect_backends.registry import BrokenBackend, LoadedBackend
from onnxbisect_db import queues, workers
from onnxbisect_db.queues import Length
from onnxbisect_db.tables import Worker

router = APIRouter(tags=["backends"])


class OptionView(BaseModel):
    """What `options` of a target may have."""

    name: str
    default: str
    choices: list[str] = Field(description="values that it takes; none where any goes")
    help: str
    local: bool = Field(description="names something of the worker's machine: takes nothing but its choices here")


class BackendWorkerView(BaseModel):
    """A worker, as one backend sees it."""

    id: str
    takes: bool = Field(description="whether it takes probes of this backend")
    says: str = Field(description="the tool and its version, or why it cannot be used there")


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


class BackendChange(BaseModel):
    """What an admin may change."""

    model_config = ConfigDict(extra="forbid")

    at_most: int | None = Field(ge=0, le=100_000, description="null for no bound, 0 to pause it")


class WorkerView(BaseModel):
    """A process that takes probes, as it last told of itself."""

    id: str
    alive: bool
    backends: list[str]
    tools: dict[str, str] = Field(description="by backend, the tool and its version, or why it cannot be used there")
    slots: int = Field(description="compiles that it runs at a time")
    started_at: datetime
    seen_at: datetime


@router.get("/backends", summary="Compilers that can be asked")
def listed(service: TheService, caller: Reader) -> list[BackendView]:
    """Those that are installed here, and those that workers have."""
    with service.database.session() as session:
        return _views(session)


@router.patch("/backends/{name}", summary="Bound how many probes of a compiler run at a time")
def change(name: BackendName, wanted: BackendChange, service: TheService, caller: Admin) -> BackendView:
    """It holds for all tenants. Probes that run already run on."""
    with service.database.session() as session:
        if name not in {view.name for view in _views(session)}:
            raise missing("backend")
    service.database.run(lambda session: queues.limit(session, name, wanted.at_most))
    with service.database.session() as session:
        return next(view for view in _views(session) if view.name == name)


@router.get("/workers", summary="Processes that compile")
def present(service: TheService, caller: Reader) -> list[WorkerView]:
    """All that were seen within a day."""
    with service.database.session() as session:
        since = workers.alive_since(session)
        return [
            WorkerView(
                id=worker.id,
                alive=worker.seen_at > since,
                backends=worker.backends,
                tools=worker.tools,
                slots=worker.slots,
                started_at=worker.started_at,
                seen_at=worker.seen_at,
            )
            for worker in workers.listed(session)
        ]


@cache
def _installed() -> Mapping[str, LoadedBackend | BrokenBackend]:
    """What is installed beside this process does not change while it runs; looking costs a second."""
    return registry.available()


def _views(session: Session) -> list[BackendView]:
    since = workers.alive_since(session)
    living = [worker for worker in workers.listed(session) if worker.seen_at > since]
    lengths, limits = queues.lengths(session), queues.limits(session)
    known = _installed()
    told = {name for worker in living for name in (*worker.backends, *worker.tools)}
    return [
        _view(name, known.get(name), living, lengths.get(name, Length(queued=0, running=0)), limits.get(name))
        for name in sorted({*known, *told, *lengths, *limits})
    ]


def _view(
    name: str,
    backend: LoadedBackend | BrokenBackend | None,
    living: list[Worker],
    length: Length,
    at_most: int | None,
) -> BackendView:
    options = backend.options if isinstance(backend, LoadedBackend) else ()
    return BackendView(
        name=name,
        summary=backend.summary if isinstance(backend, LoadedBackend) else "",
        problem=backend.reason if isinstance(backend, BrokenBackend) else "",
        options=[
            OptionView(
                name=option.name,
                default=option.default,
                choices=list(option.choices),
                help=option.help,
                local=option.local,
            )
            for option in options
        ],
        workers=[
            BackendWorkerView(id=worker.id, takes=name in worker.backends, says=worker.tools.get(name, ""))
            for worker in living
            if name in worker.backends or name in worker.tools
        ],
        queued=length.queued,
        running=length.running,
        at_most=at_most,
    )
