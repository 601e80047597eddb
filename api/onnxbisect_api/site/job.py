"""A job's page: its results, or its progress."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from onnxbisect.language import within
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.addresses import TheAddresses
from onnxbisect_api.found import document_of
from onnxbisect_api.names import RowId
from onnxbisect_api.overviews import overview_of
from onnxbisect_api.reader import language_of
from onnxbisect_api.repair_files import repair_document
from onnxbisect_api.service import TheService
from onnxbisect_api.site.rendering import page
from onnxbisect_api.site.report_view import overview_view, report_view
from onnxbisect_api.site.situation import Situation, situation
from onnxbisect_api.unit_names import Names
from onnxbisect_api.unit_states import CulpritUnits, of_report
from onnxbisect_db.tables import Search
from onnxbisect_service.service import Service

if TYPE_CHECKING:
    from onnxbisect_api.site.repair_view import RepairOnPage

router = APIRouter()

#: How many edges around the culprit the graph initially shows.
_HOPS = 3
#: Query parameters that move the graph's initial view.
_ELSEWHERE = frozenset({"culprit", "unit"})

#: The number of one of several targets; an empty field counts as none.
Target = Annotated[int | None, Query(ge=1, le=32)]


@router.get("/jobs/{job_id}", dependencies=[IN_TURN])
def shown(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    target: Target = None,
) -> Response:
    """The job's page: one target, or for several without `target` their overview."""
    names: Names = request.app.state.names
    now = situation(service, request.app.state.passed_units, caller, addresses, job_id, target)
    with within(language_of(request)):
        values = {"doc": None, "overview": None, **_template_values(now, service)}
        repair = None if now.search is None else _repair(service, now.search)
    states = now.states if values["doc"] is None else of_report(values["doc"])
    culprits = [] if states is None else states.culprits
    return page(
        request,
        "job.html.j2",
        caller,
        **now.content(),
        **values,
        repair=repair,
        shape=now.shape,
        culprits=culprits,
        after_culprits=None if now.search is None or now.search.graph is None else "_job_graph.html.j2",
        hops=_HOPS,
        begins_at=_begins_at(request, culprits),
        drawn=_drawn(now, names),
        server_time=datetime.now(UTC),
    )


def _template_values(now: Situation, service: Service) -> dict[str, Any]:
    """The template's values for the target's report or the overview of all targets; empty while there is none."""
    if now.search is not None and now.search.report is not None:
        return report_view(now.row, now.search, document_of(service, now.search.report))
    overview = overview_of(now.row, service) if now.search is None and not now.going else None
    return {} if overview is None else overview_view(now.row, overview)


def _begins_at(request: Request, culprits: Sequence[CulpritUnits]) -> str:
    """The units of the first culprit, around which the graph starts; empty if the URL names another place."""
    if _ELSEWHERE & request.query_params.keys():
        return ""
    return next((culprit.units for culprit in culprits if culprit.units), "")


def _drawn(now: Situation, names: Names) -> dict[str, Any] | None:
    """The data for the strip that shows each unit's state during a search; None if there are none."""
    if now.search is None or now.search.universe is None or now.states is None:
        return None
    try:
        called = names.of(now.search.universe)
    except FileNotFoundError:  # the job was deleted during this request
        return None
    return {
        "units": {"names": called.names, "ops": called.ops, "states": now.states.states},
        "culprits": [{"occurrence_units": [culprit.places]} for culprit in now.states.culprits],
    }


def _repair(service: Service, search: Search) -> "RepairOnPage | None":
    document = repair_document(service, search)
    if document is None:
        return None
    # imported here because it imports ONNX, which takes a quarter of a second
    from onnxbisect_api.site.repair_view import repair_on_page

    return repair_on_page(document, search)
