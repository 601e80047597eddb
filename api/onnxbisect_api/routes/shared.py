"""A culprit's model for Netron's site, which runs in a browser without a session here.

The URL has a ticket in place of a token, and only that site may read the response.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from onnxbisect_api import tickets
from onnxbisect_api.access import AccessControl
from onnxbisect_api.found import culprit_sha256, job_of, search_of, stored
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes.reports import FILE, CulpritNumber, TargetNumber

router = APIRouter(tags=["reports"])

#: Draws models in the browser, without sending them to its server.
NETRON = "https://netron.app"
_MODEL: Final = "model.onnx"


@router.get(
    "/jobs/{job_id}/culprits/{number}/shared/model.onnx",
    summary="A culprit's model, for a viewer with a ticket",
    response_class=Response,
    responses=FILE,
)
async def shared(
    job_id: RowId,
    number: CulpritNumber,
    request: Request,
    service: TheService,
    ticket: Annotated[str, Query(max_length=200, description="made by the page of the job")],
    target: TargetNumber = None,
) -> Response:
    """The job's page links to this URL with a ticket in place of a token; the ticket is valid for an hour."""
    access_control: AccessControl = request.app.state.access_control

    def found() -> tuple[str, str]:
        with service.database.session() as session:
            holder = tickets.holder(session, what(job_id, target, number), ticket)
            search = search_of(job_of(session, job_id, holder), target)
            return holder.tenant, culprit_sha256(search, number, _MODEL)

    tenant, sha256 = await run_in_threadpool(found)
    headers = {
        "Access-Control-Allow-Origin": NETRON,
        "Content-Disposition": f'attachment; filename="{_MODEL}"',
        "Vary": "Origin",
    }
    async with access_control.file_turns.turn(tenant):
        return await run_in_threadpool(stored, service, sha256, "application/octet-stream", headers)


def what(job_id: str, target: int | None, number: int) -> str:
    """The text that identifies the file in its ticket."""
    return f"{job_id} {target or ''} {number} {_MODEL}"
