"""The list of jobs: filtered, updated while they run, and compared in pairs."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BeforeValidator, StringConstraints

from onnxbisect.language import english
from onnxbisect.verdict import Status
from onnxbisect_api.access import Reader
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.parameters import ONE_LINE, UUID_PATTERN, BackendName, TheAddresses, TheService
from onnxbisect_api.site.rendering import page
from onnxbisect_api.views import listing
from onnxbisect_api.views.job_view import JobViewData, job_view
from onnxbisect_db import jobs, workers
from onnxbisect_db.states import JobState

router = APIRouter()

# Browsers also send empty fields of a form; these count as missing.
_Said = BeforeValidator(lambda value: value or None)
#: The filter by outcome: a job's verdict, or its state if it has no verdict.
_Outcome = Annotated[Status | JobState | None, _Said]
_Text = Annotated[Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=200)] | None, _Said]
#: The backend of the first job's commands, if a worker has it.
_USUAL = "onnxruntime"
_Label = Annotated[str, Query(max_length=400)]


@router.get("/")
def home() -> RedirectResponse:
    """Redirect the root to the list of jobs."""
    return RedirectResponse("/jobs", 303)


@router.get("/jobs")
def job_list_page(
    request: Request,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    paged: listing.PagedRows,
    state: _Outcome = None,
    text: _Text = None,
    target: Annotated[BackendName | None, _Said] = None,
    label: Annotated[list[_Label], Query(max_length=9)] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """The list of jobs, newest first. htmx, which updates the rows, gets only the rows."""
    try:
        wanted, complaint = listing.read_labels(each for each in label if each), ""
    except Problem as problem:
        wanted, complaint = {}, problem.detail
    sought = jobs.JobFilter(
        state=state if isinstance(state, JobState) else None,
        verdict=state if isinstance(state, Status) else None,
        text=text,
        backend=target,
        labels=wanted,
    )
    with service.database.session() as session:
        found = jobs.list_page(session, caller.tenant, sought, after=paged.after, limit=paged.limit)
        view_data = JobViewData.of(session, found.rows)
        offered = workers.slots(session)
    paged.next_is(found.after)
    shown = [job_view(job, addresses, view_data) for job in found.rows]
    part = "_jobs.html.j2" if request.headers.get("hx-request") else "jobs.html.j2"
    return page(
        request,
        part,
        caller,
        jobs=shown,
        going=any(not job.state.ended for job in shown),
        # Choices of the filter: backends of live workers, those of the listed jobs, and the chosen one.
        backends=sorted({*offered, *(view.backend for job in shown for view in job.targets), *filter(None, [target])}),
        state=state,
        text=text or "",
        target=target,
        labels=wanted,
        complaint=complaint,
        typed=" ".join(label) if complaint else "",
        narrowed=bool(state or text or target or wanted),
        query=request.url.query,
        suggested=_USUAL if _USUAL in offered else min(offered, default=_USUAL),
        root=(service.settings.public_url or str(request.base_url)).rstrip("/"),
        next=paged.next,
        first=paged.after is None,
        without=lambda name: _address(text, state, target, {key: wanted[key] for key in wanted if key != name}),
        labelled=lambda name, value: _address(text, state, target, {**wanted, name: value}),
    )


@router.get("/jobs/compare")
def compare(
    caller: Reader,
    job: Annotated[list[Annotated[str, Query(pattern=UUID_PATTERN)]], Query(max_length=100)] = [],  # noqa: B006
) -> Response:
    """Redirect to the comparison of the two selected jobs, the older one first."""
    if len(job) != 2:
        raise Problem(422, english("Tick two jobs to compare: {count} are ticked.", count=len(job)))
    older, newer = sorted(job)
    return RedirectResponse(f"/compare?{urlencode({'a': older, 'b': newer})}", 303)


def _address(text: str | None, state: str | None, target: str | None, wanted: dict[str, str]) -> str:
    """The URL of the list with these filters."""
    query = [(name, value) for name, value in (("text", text), ("state", state), ("target", target)) if value]
    query += [("label", f"{name}:{value}") for name, value in wanted.items()]
    return f"/jobs?{urlencode(query)}" if query else "/jobs"
