"""A job's page: reports and repairs of its targets, forms that change it, and live updates by server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.concurrency import run_in_threadpool

from onnxbisect.language import _, marked, within
from onnxbisect.report.contents import Report
from onnxbisect.report.html import CulpritLinks, Link, Links
from onnxbisect.report.overview import Overview, overview_page
from onnxbisect.report.reading import translated_report
from onnxbisect_api.access import IN_TURN, AccessControl, Caller, Contributor, Listener, Reader, Submitter, demand_good
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.limits import Turns
from onnxbisect_api.parameters import Addresses, RowId, TheAddresses, TheService, language_of
from onnxbisect_api.routes import jobs
from onnxbisect_api.routes.events import TheWatch, Watch
from onnxbisect_api.routes.reports import ReportForm
from onnxbisect_api.site.job_page_data import JobPageData, job_page_data
from onnxbisect_api.site.rendering import fragment, page
from onnxbisect_api.submission.job_making import asked_before, create_job, validate_terms
from onnxbisect_api.submission.job_request import RepairRequest
from onnxbisect_api.views.found import (
    culprit_number,
    document_of,
    file_address,
    job_of,
    precision_document,
    repair_document,
)
from onnxbisect_api.views.overviews import labelled, overview_of
from onnxbisect_api.views.units import Names, PassedUnitsCache, of_report
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service

_FORMS = {
    ReportForm.JSON: "JSON",
    ReportForm.MD: "Markdown",
    ReportForm.HTML: marked("HTML file"),
    ReportForm.JUNIT: "JUnit",
    ReportForm.SARIF: "SARIF",
    ReportForm.GITLAB: "GitLab Code Quality",
}


def report_view(job: Job, search: Search, document: Report) -> dict[str, object]:
    """The values for one target, whose report is `document`, in the reader's language."""
    target = search.ordinal + 1
    url = f"/v1/jobs/{job.id}"
    addresses: dict[int, dict[str, str]] = {}
    for path in (it for it in search.files if it.startswith("culprits/")):
        folder, _slash, name = path.removeprefix("culprits/").partition("/")
        addresses.setdefault(culprit_number(folder), {})[name] = file_address(url, path, target)
    culprits = {}
    for number, files in addresses.items():
        names = [name for name in ("model.onnx", "model.data") if name in files]
        netron = f"/jobs/{job.id}/culprits/{number}/netron?target={target}"
        culprits[number] = CulpritLinks(
            files=tuple(Link(text=_("Download {file}", file=name), href=files[name]) for name in names),
            saved_as="model.onnx",
            log=files.get("compiler.log", ""),
            graph="#graph",
            viewers=(Link(text=_("Open in Netron"), href=netron),) if names else (),
        )
    forms = [Link(text=_(text), href=f"{url}/report?target={target}&format={form}") for form, text in _FORMS.items()]
    if search.graph is not None:
        for name, text in (("graph", _("Model Explorer: graph")), ("verdicts", _("Model Explorer: verdicts"))):
            forms.append(Link(text=text, href=f"{url}/model-explorer/{name}.json?target={target}"))
    links = Links(
        culprits=culprits,
        forms=tuple(forms),
        probes=f"/jobs/{job.id}/probes?target={target}",
        may_repair=job.request.get("repair") is None,
        repaired="#repair" if "repair/repaired.onnx" in search.files else "",
        each_probe=f"/jobs/{job.id}/probes/{{}}?target={target}",
    )
    return {"doc": translated_report(document), "links": links}


def overview_view(job: Job, document: Overview) -> dict[str, object]:
    """The values for all targets of the job, whose overview is `document`, in the reader's language."""
    numbers = {label: search.ordinal + 1 for label, search in labelled([job])[0].items()}
    return {"overview": overview_page(document, lambda label: f"/jobs/{job.id}?target={numbers[label]}")}


router = APIRouter()

#: How many edges around the culprit the graph initially shows.
_HOPS = 3
#: Query parameters that move the graph's initial view.
_ELSEWHERE = frozenset({"culprit", "unit"})

#: The number of one of several targets; an empty field counts as none.
Target = Annotated[int | None, Query(ge=1, le=32)]


@router.get("/jobs/{job_id}", dependencies=[IN_TURN])
def job_page(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    target: Target = None,
) -> Response:
    """The job's page: one target, or for several without `target` their overview."""
    names: Names = request.app.state.names
    data = job_page_data(service, request.app.state.passed_units, caller, addresses, job_id, target)
    with within(language_of(request)):
        values: dict[str, Any] = {"doc": None, "overview": None}
        if data.search is not None and data.search.report is not None:
            values |= report_view(data.row, data.search, document_of(service, data.search.report))
        elif data.search is None and not data.going and (document := overview_of(data.row, service)) is not None:
            values |= overview_view(data.row, document)
        repair = precise = None
        if (search := data.search) is not None:
            repaired, measured = repair_document(service, search), precision_document(service, search)
            if repaired is not None or measured is not None:
                # imported here because it imports ONNX, which takes a quarter of a second
                from onnxbisect_api.site.stage_views import precision_on_page, repair_on_page

                repair = None if repaired is None else repair_on_page(repaired, search)
                precise = None if measured is None else precision_on_page(measured, search)
    states = data.states if values["doc"] is None else of_report(values["doc"])
    culprits = [] if states is None else states.culprits
    # the graph starts around the first culprit, unless the URL names another place
    elsewhere = bool(_ELSEWHERE & request.query_params.keys())
    begins_at = "" if elsewhere else next((culprit.units for culprit in culprits if culprit.units), "")
    return page(
        request,
        "job.html.j2",
        caller,
        **data.content(),
        **values,
        repair=repair,
        precise=precise,
        shape=data.shape,
        culprits=culprits,
        after_culprits=None if data.search is None or data.search.graph is None else "_job_graph.html.j2",
        hops=_HOPS,
        begins_at=begins_at,
        drawn=_drawn(data, names),
        server_time=datetime.now(UTC),
    )


def _drawn(data: JobPageData, names: Names) -> dict[str, Any] | None:
    """The data for the strip that shows each unit's state during a search; None if there are none."""
    if data.search is None or data.search.universe is None or data.states is None:
        return None
    try:
        called = names.of(data.search.universe)
    except FileNotFoundError:  # the job was deleted during this request
        return None
    return {
        "units": {"names": called.names, "ops": called.ops, "states": data.states.states},
        "culprits": [{"occurrence_units": [culprit.places]} for culprit in data.states.culprits],
    }


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> Response:
    """Cancel the job like `POST /v1/jobs/{job_id}/cancel`, and redirect to its page."""
    jobs.cancel_job(job_id, service, caller, addresses)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> Response:
    """Retry the job like `POST /v1/jobs/{job_id}/retry`, and redirect to its page."""
    jobs.retry_job(job_id, service, caller, addresses)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/repair")
def repair(job_id: RowId, service: TheService, caller: Contributor, addresses: TheAddresses) -> Response:
    """Create a job like this one that repairs what it finds, and redirect to its page.

    What the compiler has answered is known, so only the repair takes its time.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        before, model = asked_before(job), job.model_sha256
    wanted = validate_terms(before.model_copy(update={"repair": before.repair or RepairRequest()}), service, caller)
    view = create_job(wanted, model, service, caller, addresses, idempotency_key=None)
    return RedirectResponse(f"/jobs/{view.id}", 303)


@router.post("/jobs/{job_id}/delete", dependencies=[IN_TURN])
def delete_job(job_id: RowId, service: TheService, caller: Submitter) -> Response:
    """Delete the job like `DELETE /v1/jobs/{job_id}`, and redirect to the list of jobs."""
    jobs.delete_job(job_id, service, caller)
    return RedirectResponse("/jobs", 303)


# Live updates of the page by server-sent events.

#: Seconds between updates of the page.
_PAUSE_SECONDS = 0.5
#: Seconds between heartbeats, which keep proxies from closing the stream. Then the stream also reads the job again,
#: because new workers create no events.
_HEARTBEAT_SECONDS = 5.0
_RETRY_MILLISECONDS = 1000
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, kw_only=True)
class _StreamContext:
    """The job and target that a stream is about, and the resources to read them."""

    service: Service
    known: PassedUnitsCache
    caller: Caller
    addresses: Addresses
    job_id: str
    target: int | None
    language: str
    turns: Turns

    def page_data(self) -> JobPageData:
        """The current data of the page."""
        return job_page_data(self.service, self.known, self.caller, self.addresses, self.job_id, self.target)


@dataclass(frozen=True, kw_only=True)
class _PageState:
    """The contents of the page when the job has `events` events."""

    events: int
    shape: str
    going: bool
    html: str
    states: str


@router.get("/jobs/{job_id}/stream")
async def stream(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Listener,
    addresses: TheAddresses,
    watch: TheWatch,
    shape: Annotated[str, Query(max_length=20)],
    target: Target = None,
) -> Response:
    """Streams changes of the page, which was loaded with this `shape`.

    Events without a name have HTML for htmx, `verdicts` the states of the units. `anew` tells the page to reload,
    because it now has other parts. `over` tells that nothing will change any more.
    """
    access_control: AccessControl = request.app.state.access_control
    context = _StreamContext(
        service=service,
        known=request.app.state.passed_units,
        caller=caller,
        addresses=addresses,
        job_id=job_id,
        target=target,
        language=language_of(request),
        turns=access_control.stream_turns,
    )
    async with context.turns.turn(caller.tenant):
        first = await run_in_threadpool(_page_state, context)
    return EventSourceResponse(_frames(context, watch, first, shape), headers=_UNBUFFERED)


async def _frames(context: _StreamContext, watch: Watch, state: _PageState, shape: str) -> AsyncIterator[bytes]:
    yield format_sse_event(retry=_RETRY_MILLISECONDS)
    html = states = ""
    while state.shape == shape:
        if state.states != states:
            states = state.states
            yield format_sse_event(data_str=states, event="verdicts")
        if state.html != html:
            html = state.html
            yield format_sse_event(data_str=html)
        if not state.going:
            yield format_sse_event(data_str="", event="over")
            return
        await asyncio.sleep(_PAUSE_SECONDS)
        if not await watch.past(
            context.job_id, state.events, token_id=context.caller.token_id, seconds=_HEARTBEAT_SECONDS
        ):
            if watch.ended:
                return
            yield KEEPALIVE_COMMENT
        try:
            async with context.turns.turn(context.caller.tenant):
                state = await run_in_threadpool(_page_state, context)
        except Problem:  # the job was deleted, the token revoked, or the service too busy
            break
    yield format_sse_event(data_str="", event="anew")


def _page_state(context: _StreamContext) -> _PageState:
    with context.service.database.session() as session:
        demand_good(session, context.caller)
    data = job_page_data(
        context.service, context.known, context.caller, context.addresses, context.job_id, context.target
    )
    may_submit = bool(context.caller.scopes & {Scope.SUBMIT, Scope.ADMIN})
    return _PageState(
        events=data.row.events,
        shape=data.shape,
        going=data.going,
        html=fragment("_job_changes.html.j2", context.language, **data.content(), may_submit=may_submit),
        states="" if data.states is None else json.dumps(data.states.model_dump(), separators=(",", ":")),
    )
