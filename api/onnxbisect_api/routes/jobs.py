"""Jobs: made, watched, ended, made again, forgotten."""

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from onnxbisect_api import targets
from onnxbisect_api.access import Caller, Contributor, Reader, Submitter
from onnxbisect_api.addresses import TheAddresses
from onnxbisect_api.job_request import BackendName, JobRequest, WebhookRequest
from onnxbisect_api.job_view import JobView, SubmittedView, job_view
from onnxbisect_api.labels import TheLabels
from onnxbisect_api.names import SHA256_PATTERN, RowId
from onnxbisect_api.pages import Paged
from onnxbisect_api.problems import Problem, missing
from onnxbisect_api.service import TheService
from onnxbisect_api.watch import TheWatch
from onnxbisect_db import endpoints, jobs, lifecycle, retention, workers
from onnxbisect_db.jobs import Created, Filter, NewJob
from onnxbisect_db.reconcile import SearchBell
from onnxbisect_db.states import JobState, Scope, Stage
from onnxbisect_db.tables import Job
from onnxbisect_worker import outbound
from onnxbisect_worker.order import Order
from onnxbisect_worker.service import Service

router = APIRouter(tags=["jobs"])

#: How long one request may wait for a job to end, and how often it is looked whether anybody still listens.
_LONGEST_WAIT = 60.0
_LISTENS_SECONDS = 1.0
_LATER = {"Retry-After": "60"}

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern="^[!-~]+$",
        description="the same key within a day makes the job once, and answers with it again",
    ),
]


@router.post("/jobs", status_code=202, summary="Diagnose a model on one or more targets")
def submit(
    wanted: JobRequest,
    service: TheService,
    caller: Contributor,
    addresses: TheAddresses,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SubmittedView:
    """The job waits for workers that have the compilers. Watch it with `GET /v1/jobs/{id}?wait=60`, with
    `/v1/jobs/{id}/events`, or have a webhook tell.
    """
    with service.database.session() as session:
        offered = workers.slots(session)
    new = _new_job(wanted, service, caller, offered)

    def make(session: Session) -> tuple[Created, str | None]:
        created = jobs.create(session, new, tenant=caller.tenant, idempotency_key=idempotency_key)
        if created.new and jobs.going(session, caller.tenant) > service.settings.tenant_jobs:
            raise Problem(
                429, f"{service.settings.tenant_jobs} jobs wait or run already: let some end, or cancel them.", _LATER
            )
        endpoint = endpoints.of_job(session, created.job.id)
        return created, None if endpoint is None else endpoint.secrets[0]

    created, secret = service.database.run(make)
    if created.new:
        _ring(service, created.job)
    view = job_view(created.job, addresses, offered)
    response.headers["Location"] = view.url
    return SubmittedView(**dict(view), webhook_secret=secret)


@router.get("/jobs", summary="List jobs, the newest first")
def listed(
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    paged: Paged,
    labels: TheLabels,
    state: JobState | None = None,
    model: Annotated[str | None, Query(pattern=SHA256_PATTERN, description="SHA-256 of the model")] = None,
    target: Annotated[BackendName | None, Query(description="a backend that it was asked on")] = None,
) -> list[JobView]:
    """In pages: the `Link` header says where the next one is."""
    wanted = Filter(state=state, model_sha256=model, backend=target, labels=labels)
    with service.database.session() as session:
        page = jobs.listed(session, caller.tenant, wanted, after=paged.after, limit=paged.limit)
        offered = workers.slots(session)
    paged.next_is(page.after)
    return [job_view(job, addresses, offered) for job in page.jobs]


@router.get("/jobs/{job_id}", summary="A job, now or when it has ended")
async def shown(
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
    """With `wait`, the answer comes when the job has ended, or after so many seconds."""
    until = time.monotonic() + wait
    while True:
        job, view = await run_in_threadpool(_read, service, caller, addresses, job_id)
        left = until - time.monotonic()
        if view.state.ended or left <= 0 or watch.ended:
            return view
        while not await watch.past(job_id, job.events, seconds=min(left, _LISTENS_SECONDS)):
            left = until - time.monotonic()
            if left <= 0 or watch.ended or await request.is_disconnected():
                return view


@router.post("/jobs/{job_id}/cancel", summary="End a job now")
def cancel(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> JobView:
    """Its compilers are killed. Cancelling twice is once; a job that has ended by itself cannot be cancelled."""
    return _changed(lifecycle.cancel, service, caller, addresses, job_id)


@router.post("/jobs/{job_id}/retry", summary="Begin a job anew", status_code=202)
def retry(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> JobView:
    """For jobs that failed or were cancelled. What compilers have answered is not asked again."""
    view = _changed(lifecycle.retry, service, caller, addresses, job_id)
    with service.database.session() as session:
        job = jobs.get(session, job_id, caller.tenant)
    if job is not None:
        _ring(service, job)
    return view


@router.delete("/jobs/{job_id}", status_code=204, summary="Delete a job and all that came of it")
def delete(job_id: RowId, service: TheService, caller: Submitter) -> None:
    """Also its reports, its model and what it taught the verdict base, unless another job needs them. If it is
    running, it ends.
    """
    unneeded = service.database.run(lambda session: retention.forget(session, job_id, caller.tenant))
    if unneeded is None:
        raise missing("job")
    retention.discard(service.files, unneeded)


def _new_job(wanted: JobRequest, service: Service, caller: Caller, offered: dict[str, int]) -> NewJob:
    settings = service.settings
    if wanted.priority > 0 and Scope.ADMIN not in caller.scopes:
        raise Problem(403, "A priority above 0 puts a job before everybody's: it needs a token with the scope 'admin'.")
    if wanted.seconds is not None and wanted.seconds > settings.compile_seconds:
        raise Problem(422, f"One compile may take {settings.compile_seconds:g} seconds here at most.")
    webhook = WebhookRequest(url=wanted.webhook) if isinstance(wanted.webhook, str) else wanted.webhook
    complaint = None if webhook is None else outbound.complaint(webhook.url, settings.webhook_allow)
    if complaint is not None:
        raise Problem(422, complaint)
    order = Order(
        input_shapes=wanted.input_shapes,
        seconds=wanted.seconds,
        budget_calls=wanted.budget.calls,
        budget_seconds=wanted.budget.seconds,
        recheck=wanted.recheck,
        calibration=wanted.calibration,
    )
    return NewJob(
        model_sha256=wanted.model,
        targets=targets.checked(wanted.targets, offered),
        request=order.to_json(),
        files=tuple(sorted(set(wanted.calibration.values()))),
        labels=wanted.labels,
        priority=wanted.priority,
        webhook=None if webhook is None else webhook.url,
        webhook_events=() if webhook is None else webhook.types,
    )


def _read(service: Service, caller: Caller, addresses: TheAddresses, job_id: str) -> tuple[Job, JobView]:
    with service.database.session() as session:
        job = jobs.get(session, job_id, caller.tenant)
        if job is None:
            raise missing("job")
        return job, job_view(job, addresses, workers.slots(session))


def _changed(
    change: Callable[[Session, str, str], Job | None],
    service: Service,
    caller: Caller,
    addresses: TheAddresses,
    job_id: str,
) -> JobView:
    if service.database.run(lambda session: change(session, job_id, caller.tenant)) is None:
        raise missing("job")
    return _read(service, caller, addresses, job_id)[1]


def _ring(service: Service, job: Job) -> None:
    for search in job.searches:
        bell = SearchBell(search_id=search.id, stage=Stage.PREPARE, backend=search.backend)
        service.bell.search(bell)
