"""Health and metrics. These addresses have no `/v1`: orchestrators and Prometheus expect them there."""

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.responses import PlainTextResponse

from onnxbisect_api.access import Operator
from onnxbisect_api.health import Metrics, Readiness
from onnxbisect_api.problems import Problem

router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """The process is healthy."""

    status: str = "ok"


@router.get("/livez", summary="Liveness of the process")
async def live() -> HealthView:
    """Succeeds whenever the process answers. Nothing else is checked, because a restart would repair nothing else."""
    return HealthView()


@router.get("/readyz", summary="Readiness for requests")
async def ready(request: Request) -> HealthView:
    """Checks the database with this version's tables, the queue, the file store, and that the disk can be written to.

    A 503 names what fails. The answer may be two seconds old.
    """
    readiness: Readiness = request.app.state.readiness
    wrong = await readiness.complaints()
    if wrong:
        raise Problem(503, " ".join(wrong), {"Retry-After": "5"})
    return HealthView()


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def metrics(request: Request, caller: Operator) -> PlainTextResponse:
    """Of the whole service, so for a token with the scope `operator`, which is made on the server. They contain no
    tenants, models or labels.
    """
    metrics: Metrics = request.app.state.metrics
    return PlainTextResponse(await metrics.text(), media_type=CONTENT_TYPE_LATEST)
