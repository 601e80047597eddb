"""Compilers, and the workers that have them."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from onnxbisect.language import english
from onnxbisect_api.access import Admin, Reader
from onnxbisect_api.backend_view import BackendView, WorkerView, backend_views, worker_views
from onnxbisect_api.job_request import BackendName
from onnxbisect_api.parameters import TheService
from onnxbisect_api.problems import missing
from onnxbisect_db import queues

router = APIRouter(tags=["backends"])


class BackendChange(BaseModel):
    """The settings that an admin can change."""

    model_config = ConfigDict(extra="forbid")

    at_most: int | None = Field(ge=0, le=100_000, description="null for no bound, 0 to pause it")


@router.get("/backends", summary="List compilers")
def listed(service: TheService, caller: Reader) -> list[BackendView]:
    """The list has the backends installed on the API's machine, those of workers, and those with waiting work."""
    with service.database.session() as session:
        return backend_views(session)


@router.patch("/backends/{name}", summary="Limit the concurrent probes of a compiler")
def change(name: BackendName, wanted: BackendChange, service: TheService, caller: Admin) -> BackendView:
    """The limit applies to all tenants. Probes that are running continue."""
    with service.database.session() as session:
        if name not in {view.name for view in backend_views(session)}:
            raise missing(english("backend"))
    service.database.run(lambda session: queues.limit(session, name, wanted.at_most))
    with service.database.session() as session:
        return next(view for view in backend_views(session) if view.name == name)


@router.get("/workers", summary="List worker processes")
def present(service: TheService, caller: Reader) -> list[WorkerView]:
    """The list has all workers that sent a heartbeat within a day."""
    with service.database.session() as session:
        return worker_views(session)
