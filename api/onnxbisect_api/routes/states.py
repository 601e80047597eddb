"""The state of every unit of a target, for programs that draw the graph."""

from fastapi import APIRouter, Request, Response

from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.found import document_of, job_of, search_of
from onnxbisect_api.headers import tag_of, unchanged
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes.reports import TargetNumber
from onnxbisect_api.units import PassedUnitsCache, StatesView, of_report, so_far

router = APIRouter(tags=["reports"])


@router.get(
    "/jobs/{job_id}/states",
    summary="The state of every unit of a target",
    response_model=StatesView,
    responses={304: {"description": "The client has it"}},
    dependencies=[IN_TURN],
)
def states(
    job_id: RowId, request: Request, service: TheService, caller: Reader, target: TargetNumber = None
) -> Response:
    """The states come from the probes answered so far while the search runs, and from the report afterwards."""
    known: PassedUnitsCache = request.app.state.passed_units
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
        passed = known.passed(session, search) if search.report is None else 0
    view = so_far(search, passed) if search.report is None else of_report(document_of(service, search.report))
    text = view.model_dump_json()
    headers = {"ETag": tag_of(text)}
    return unchanged(request, headers) or Response(text, media_type="application/json", headers=headers)
