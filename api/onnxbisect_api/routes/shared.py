"""A culprit's model for Netron's site, which runs in a browser without a session here.

The URL has a ticket in place of a token, and only that site may read the response.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from onnxbisect_api import tickets
from onnxbisect_api.culprit_files import file_of, stored
from onnxbisect_api.found import job_of, search_of
from onnxbisect_api.names import RowId
from onnxbisect_api.routes.reports import FILE, CulpritNumber, TargetNumber
from onnxbisect_api.service import TheService

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
def shared(
    job_id: RowId,
    number: CulpritNumber,
    service: TheService,
    ticket: Annotated[str, Query(max_length=200, description="made by the page of the job")],
    target: TargetNumber = None,
) -> Response:
    """The job's page links to this URL with a ticket in place of a token; the ticket is valid for an hour."""
    with service.database.session() as session:
        holder = tickets.holder(session, what(job_id, target, number), ticket)
        sha256 = file_of(search_of(job_of(session, job_id, holder), target), number, _MODEL)
    headers = {
        "Access-Control-Allow-Origin": NETRON,
        "Content-Disposition": f'attachment; filename="{_MODEL}"',
        "Vary": "Origin",
    }
    return stored(service, sha256, "application/octet-stream", headers)


def what(job_id: str, target: int | None, number: int) -> str:
    """The text that identifies the file in its ticket."""
    return f"{job_id} {target or ''} {number} {_MODEL}"
