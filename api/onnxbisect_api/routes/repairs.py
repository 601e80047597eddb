"""Repairs of a job, and repaired models."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.forms import ReportForm
from onnxbisect_api.found import job_of, search_of
from onnxbisect_api.headers import unchanged
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes.reports import TargetNumber
from onnxbisect_api.stored_files import RepairFileName, repair_form, repair_sha256, stored

router = APIRouter(tags=["repairs"])

_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_REPAIR: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The repair",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/markdown": _TEXT},
    },
    304: {"description": "The client has it"},
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {"application/octet-stream": _TEXT, "application/json": {"schema": {"type": "object"}}},
    },
    304: {"description": "The client has it"},
}


@router.get(
    "/jobs/{job_id}/repair",
    summary="The document of a repair",
    response_class=Response,
    responses=_REPAIR,
    dependencies=[IN_TURN],
)
def repair(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
    form: Annotated[Literal["json", "md"], Query(alias="format")] = "json",
) -> Response:
    """The same document as the file `repair.json` or `repair.md` of `onnx-bisect fix`."""
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        sha256 = repair_form(job, search_of(job, target), form)
    policy = ReportForm(form).headers["Content-Security-Policy"]
    placed = f'inline; filename="repair.{form}"'
    headers = {"ETag": f'"{sha256}"', "Content-Disposition": placed, "Content-Security-Policy": policy}
    return unchanged(request, headers) or stored(service, sha256, ReportForm(form).media_type, headers)


@router.get(
    "/jobs/{job_id}/repair/{name}",
    summary="The repaired model, or the report on what is left",
    response_class=Response,
    responses=_FILE,
    dependencies=[IN_TURN],
)
def repair_file(
    job_id: RowId,
    name: RepairFileName,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
) -> Response:
    """A repaired model uses the external data that was uploaded with the original. A report exists if culprits are
    left.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        sha256 = repair_sha256(job, search_of(job, target), name)
    saved_as = "repaired.onnx" if name == "model.onnx" else name
    headers = {"ETag": f'"{sha256}"', "Content-Disposition": f'attachment; filename="{saved_as}"'}
    media_type = "application/octet-stream" if name == "model.onnx" else "application/json"
    return unchanged(request, headers) or stored(service, sha256, media_type, headers)
