"""The page for a new job: a model, and the compilers."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from onnxbisect.errors import OnnxBisectError
from onnxbisect.language import english
from onnxbisect.precision.wanted import Low, Metric
from onnxbisect.terms import SearchTerms, terms_of
from onnxbisect_api.access import Caller, Contributor, Submitter, Uploader
from onnxbisect_api.errors.problems import Problem, status_and_sentence
from onnxbisect_api.parameters import SHA256_PATTERN, UUID_PATTERN, Addresses, TheAddresses, TheService
from onnxbisect_api.routes.backends import BackendView, OptionView, backend_views
from onnxbisect_api.site import new_fields, new_upload
from onnxbisect_api.site.rendering import page
from onnxbisect_api.submission import job_making
from onnxbisect_api.submission.job_form import FormRoute
from onnxbisect_api.submission.job_request import RequestedTerms
from onnxbisect_api.views.found import job_of
from onnxbisect_db import jobs, workers
from onnxbisect_db.errors import UnknownModelError
from onnxbisect_service.service import Service

_forms = APIRouter(route_class=FormRoute)

#: Most options of a backend that the page shows at once; it hides the others in a section to unfold.
_FEW = 6


@_forms.post("/new")
async def receive_model(request: Request, service: TheService, caller: Uploader, addresses: TheAddresses) -> Response:
    """Handle the form with a file, which is stored while it is received; the response is that of `submit`."""
    typed = new_fields.FormValues()
    try:
        await new_upload.receive_model_form(request, service, caller, typed)
    except (OnnxBisectError, Problem) as error:
        status, sentence = status_and_sentence(error)
        return await run_in_threadpool(_page, request, service, caller, typed, {"model": sentence}, status)
    return await run_in_threadpool(_submitted, request, service, caller, addresses, typed)


router = APIRouter()
router.include_router(_forms)


@router.get("/new")
def new_job_page(
    request: Request,
    service: TheService,
    caller: Submitter,
    model: Annotated[str, Query(pattern=SHA256_PATTERN)] = "",
    backend: Annotated[list[Annotated[str, Query(max_length=128)]], Query(max_length=32)] = [],  # noqa: B006
    job: Annotated[str, Query(pattern=UUID_PATTERN)] = "",
) -> Response:
    """The page with an empty form; a link's query may choose model and backends, or a job whose terms it then has."""
    if job:
        with service.database.session() as session:
            before = job_of(session, job, caller)
            return _page(
                request, service, caller, new_fields.filled(job_making.asked_before(before), before.model_sha256, job)
            )
    chosen = new_fields.FormValues([("model", model), *(("backend", name) for name in backend)])
    return _page(request, service, caller, chosen)


@router.post("/new")
async def submit(request: Request, service: TheService, caller: Contributor, addresses: TheAddresses) -> Response:
    """Handle the form for an uploaded model."""
    async with request.form() as form:
        typed = new_fields.FormValues((name, value) for name, value in form.multi_items() if isinstance(value, str))
    return await run_in_threadpool(_submitted, request, service, caller, addresses, typed)


def _submitted(
    request: Request, service: Service, caller: Caller, addresses: Addresses, typed: new_fields.FormValues
) -> Response:
    """Create the job and redirect to its page, or show the form again with errors beside its fields."""
    with service.database.session() as session:
        offered = workers.slots(session)
        defaults = {
            view.name: {option.name: option.default for option in _offered(view)} for view in backend_views(session)
        }
    lacks = {} if typed.one("model") else {"model": english("Choose a model.")}
    before = _repeated(typed, service, caller)
    try:
        known = {} if before is None else before.calibration
        read = new_fields.terms(typed, defaults, lambda target: job_making.checked([target], offered), known)
        wanted = job_making.validate_terms(_repeating(read, before), service, caller)
        if lacks:
            raise new_fields.FieldsError(lacks)
        view = job_making.create_job(wanted, typed.one("model"), service, caller, addresses, idempotency_key=None)
    except new_fields.FieldsError as wrong:
        return _page(request, service, caller, typed, {**wrong.complaints, **lacks}, 422)
    except UnknownModelError as error:
        return _page(request, service, caller, typed, {"model": str(error)}, 422)
    except (OnnxBisectError, Problem) as error:
        status, sentence = status_and_sentence(error)
        return _page(request, service, caller, typed, {"": sentence}, status)
    return RedirectResponse(f"/jobs/{view.id}", 303)


def _repeated(typed: new_fields.FormValues, service: Service, caller: Caller) -> RequestedTerms | None:
    """The terms of the job that the form repeats; for another model, without its samples. None if it repeats none."""
    if not re.fullmatch(UUID_PATTERN, typed.one("again")):
        return None
    with service.database.session() as session:
        before = jobs.get(session, typed.one("again"), caller.tenant)
        if before is None:
            return None
        terms = job_making.asked_before(before)
        if before.model_sha256 == typed.one("model"):
            return terms
    repair = None if terms.repair is None else terms.repair.model_copy(update={"samples": {}})
    return terms.model_copy(update={"calibration": {}, "repair": repair, "precision": None})


def _repeating(terms: RequestedTerms, before: RequestedTerms | None) -> RequestedTerms:
    """The terms, with those of the job before that the form has no fields for."""
    if before is None:
        return terms
    repair = terms.repair
    if repair is not None and before.repair is not None:
        chosen = {
            "allow": repair.spec.allow,
            "alternatives": repair.alternatives and (before.repair.alternatives or "all"),
        }
        repair = before.repair.model_copy(update=chosen)
    precision = terms.precision
    if precision is not None and before.precision is not None:
        precision = precision.model_copy(update={"budget": before.precision.budget})
    unseen = {it.name: getattr(before, it.name) for it in terms_of(SearchTerms) if it not in new_fields.MORE}
    own = {"repair": repair, "precision": precision, "priority": before.priority}
    return terms.model_copy(update={**unseen, **own})


def _page(
    request: Request,
    service: Service,
    caller: Caller,
    typed: new_fields.FormValues,
    complaints: new_fields.Complaints = {},  # noqa: B006 - never changed
    status: int = 200,
) -> Response:
    with service.database.session() as session:
        backends = backend_views(session)
        offered = new_fields.offered(session, caller, typed)
    before = _repeated(typed, service, caller)
    return page(
        request,
        "new.html.j2",
        caller,
        status=status,
        ready=[view for view in backends if view.usable],
        waiting=[view for view in backends if not view.usable],
        **offered,
        typed=typed,
        complaints=complaints,
        offered=_offered,
        # A field with an error is not hidden in a folded section.
        opened=lambda ticked, rest: any(new_fields.option_field(ticked, option.name) in complaints for option in rest),
        chooses=lambda views: any(view.name in typed.all("backend") for view in views),
        more_opened=any(name in complaints or typed.one(name) for name in map(new_fields.field_name, new_fields.MORE)),
        field=new_fields.option_field,
        second=new_fields.second,
        few=_FEW,
        more=new_fields.MORE,
        field_name=new_fields.field_name,
        precise=new_fields.PRECISE,
        precise_name=new_fields.precise_name,
        choices={"low": list(Low), "metric": list(Metric)},
        came=typed.all("sample"),
        samples=0 if before is None else len(before.calibration) + len(before.repair.samples if before.repair else ()),
        most_seconds=service.settings.compile_seconds,
    )


def _offered(view: BackendView) -> list[OptionView]:
    """The options that remote clients can set."""
    return [option for option in view.options if option.choices or not option.local]
