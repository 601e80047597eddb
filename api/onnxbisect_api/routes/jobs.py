"""Jobs: created, watched, cancelled, retried, deleted."""

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from onnxbisect.language import english
from onnxbisect.verdict import Status
from onnxbisect_api.access import IN_TURN, AccessControl, Caller, Contributor, Reader, Submitter, Uploader, demand_good
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import (
    ONE_LINE,
    SHA256_PATTERN,
    BackendName,
    IdempotencyKey,
    RowId,
    TheAddresses,
    TheService,
)
from onnxbisect_api.routes.events import TheWatch
from onnxbisect_api.submission import job_form
from onnxbisect_api.submission.job_form import FormRoute, JobDocument
from onnxbisect_api.submission.job_making import create_job, create_jobs, demand_can_take, validate_terms
from onnxbisect_api.submission.job_request import JobRequest
from onnxbisect_api.uploads.model_form import ReceivedForm
from onnxbisect_api.uploads.model_upload import note_form, receive_form
from onnxbisect_api.views.job_view import JobView, JobViewData, PartsSubmitted, SubmittedView, job_view
from onnxbisect_api.views.listing import PagedRows, TheLabels
from onnxbisect_db import jobs, lifecycle, retention
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service

router = APIRouter(tags=["jobs"])
#: Jobs submitted together with their model; `router` has the description of the form.
forms_router = APIRouter(route_class=FormRoute, include_in_schema=False)

#: Longest wait of one request for a job's end, and seconds between checks that the client is still connected.
_LONGEST_WAIT = 60.0
_LISTENS_SECONDS = 1.0


@router.post(
    "/jobs", status_code=202, summary="Diagnose a model on one or more targets", openapi_extra=job_form.DESCRIBED
)
def submit_job(
    wanted: JobRequest,
    service: TheService,
    caller: Contributor,
    addresses: TheAddresses,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SubmittedView | PartsSubmitted:
    """Creates a job, which waits for workers with the compilers. Watch it with `GET /v1/jobs/{id}?wait=60`, with
    `/v1/jobs/{id}/events`, or with a webhook. A form can contain the model itself instead of its SHA-256.

    With `models`, one request creates and returns a job for each of several models, all or none. `GET /v1/parts` has
    the table of their results.
    """
    terms = validate_terms(wanted, service, caller)
    if wanted.model is None:
        parts = create_jobs(terms, wanted.models, service, caller, addresses, idempotency_key=idempotency_key)
        response.headers["Location"] = parts.report
        return parts
    view = create_job(terms, wanted.model, service, caller, addresses, idempotency_key=idempotency_key)
    response.headers["Location"] = view.url
    return view


@forms_router.post("/jobs", status_code=202)
async def submit_job_form(
    request: Request,
    service: TheService,
    caller: Uploader,
    addresses: TheAddresses,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SubmittedView:
    """Creates a job for the model in the form. The model is stored only if the job is created."""
    document = JobDocument(lambda terms: validate_terms(terms, service, caller))

    def keep(came: ReceivedForm) -> SubmittedView:
        return create_job(
            document.valid_terms,
            came.sha256,
            service,
            caller,
            addresses,
            idempotency_key=idempotency_key,
            first=lambda session: note_form(session, caller.tenant, came),
        )

    view = await receive_form(request, service, caller.tenant, keep, texts=document)
    response.headers["Location"] = view.url
    return view


@router.get("/jobs", summary="List jobs, the newest first")
def list_jobs(
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    paged: PagedRows,
    labels: TheLabels,
    state: JobState | None = None,
    verdict: Status | None = None,
    text: Annotated[
        str | None,
        Query(
            max_length=200,
            pattern=ONE_LINE,
            description="in the model's name, or what its SHA-256 or the job's id begins with",
        ),
    ] = None,
    model: Annotated[str | None, Query(pattern=SHA256_PATTERN, description="SHA-256 of the model")] = None,
    target: Annotated[BackendName | None, Query(description="a backend that it was asked on")] = None,
) -> list[JobView]:
    """The list is paginated: the `Link` header has the URL of the next page."""
    wanted = jobs.JobFilter(
        state=state, verdict=verdict, text=text or None, model_sha256=model, backend=target, labels=labels
    )
    with service.database.session() as session:
        page = jobs.list_page(session, caller.tenant, wanted, after=paged.after, limit=paged.limit)
        view_data = JobViewData.of(session, page.rows)
    paged.next_is(page.after)
    return [job_view(job, addresses, view_data) for job in page.rows]


@router.get("/jobs/{job_id}", summary="A job, now or when it has ended")
async def get_job(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    watch: TheWatch,
    wait: Annotated[
        float, Query(ge=0, le=_LONGEST_WAIT, allow_inf_nan=False, description="seconds to wait for its end at most")
    ] = 0,
) -> JobView:
    """With `wait`, the response is sent when the job has ended, at the latest after so many seconds."""
    view = await run_in_threadpool(_read, service, caller, addresses, job_id)
    if view.state.ended or not wait:
        return view
    until = time.monotonic() + wait
    access_control: AccessControl = request.app.state.access_control
    with access_control.open_streams.one_more(caller.tenant):
        while (left := until - time.monotonic()) > 0 and not (watch.ended or await request.is_disconnected()):
            if await watch.past(job_id, None, token_id=caller.token_id, seconds=min(left, _LISTENS_SECONDS)):
                view = await run_in_threadpool(_read, service, caller, addresses, job_id)
                if view.state.ended:
                    return view
    return await run_in_threadpool(_read, service, caller, addresses, job_id)


@router.post("/jobs/{job_id}/cancel", summary="Cancel a job")
def cancel_job(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> JobView:
    """The job's compilers are killed. Cancelling it again has no effect; other ended jobs cannot be cancelled."""
    return _changed(service.reserve.run, lifecycle.cancel, service, caller, addresses, job_id)


@router.post("/jobs/{job_id}/retry", summary="Retry what has no verdict", status_code=202)
def retry_job(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> JobView:
    """Restarts the unfinished targets of a job that failed, was cancelled, or is done with failed targets.

    Finished targets are kept, and probes with a verdict are not compiled again.
    """

    def begin(session: Session, job_id: str, tenant: str) -> Job | None:
        begun = lifecycle.retry(session, job_id, tenant)
        if begun is not None:
            demand_can_take(session, service, caller)
        return begun

    return _changed(service.database.run, begin, service, caller, addresses, job_id)


@router.delete("/jobs/{job_id}", status_code=204, summary="Delete a job with its results", dependencies=[IN_TURN])
def delete_job(job_id: RowId, service: TheService, caller: Submitter) -> None:
    """The job's reports, model and verdicts in the verdict base are deleted, too, unless another job needs them.

    A running job is stopped.
    """
    unneeded = service.reserve.run(lambda session: retention.forget(session, job_id, caller.tenant))
    if unneeded is None:
        raise missing(english("job"))
    retention.discard(service.files, unneeded)


def _read(service: Service, caller: Caller, addresses: TheAddresses, job_id: str) -> JobView:
    with service.database.session() as session:
        demand_good(session, caller)
        job = jobs.get(session, job_id, caller.tenant)
        if job is None:
            raise missing(english("job"))
        return job_view(job, addresses, JobViewData.of(session, [job]))


def _changed(
    run: Callable[[Callable[[Session], Job | None]], Job | None],
    change: Callable[[Session, str, str], Job | None],
    service: Service,
    caller: Caller,
    addresses: TheAddresses,
    job_id: str,
) -> JobView:
    if run(lambda session: change(session, job_id, caller.tenant)) is None:
        raise missing(english("job"))
    return _read(service, caller, addresses, job_id)
