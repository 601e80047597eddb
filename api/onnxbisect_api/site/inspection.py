"""The page with known problems of a model for a target, before any compile."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from onnxbisect.errors import OnnxBisectError
from onnxbisect.language import english
from onnxbisect_api.access import Caller, Inspector, Submitter, Uploader
from onnxbisect_api.errors import mistakes
from onnxbisect_api.errors.problems import Problem, status_and_sentence
from onnxbisect_api.parameters import SHA256_PATTERN, TheService
from onnxbisect_api.routes.backends import backend_views
from onnxbisect_api.routes.inspect import InspectRequest, inspect_model
from onnxbisect_api.site import new_fields, new_upload
from onnxbisect_api.site.rendering import page
from onnxbisect_api.submission.job_form import FormRoute
from onnxbisect_api.submission.job_request import TargetRequest
from onnxbisect_service.service import Service

_forms = APIRouter(route_class=FormRoute)


@_forms.post("/inspect")
async def receive_model(request: Request, service: TheService, caller: Uploader, _: Inspector) -> Response:
    """Handle the form with a file, which is stored while it is received; the response is that of `inspect`."""
    typed = new_fields.FormValues()
    try:
        await new_upload.receive_model_form(request, service, caller, typed)
    except (OnnxBisectError, Problem) as error:
        status, sentence = status_and_sentence(error)
        return await run_in_threadpool(_page, request, service, caller, typed, {"model": sentence}, status=status)
    return await _inspected(request, service, caller, typed)


router = APIRouter()
router.include_router(_forms)


@router.get("/inspect")
def inspect_page(
    request: Request,
    service: TheService,
    caller: Submitter,
    model: Annotated[str, Query(pattern=SHA256_PATTERN)] = "",
    backend: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """The page with an empty form; a link's query may choose the model and the backend."""
    return _page(request, service, caller, new_fields.FormValues([("model", model), ("backend", backend)]))


@router.post("/inspect")
async def inspect(request: Request, service: TheService, caller: Inspector) -> Response:
    """Handle the form for a stored model: the page again, with the findings below the form."""
    async with request.form() as form:
        typed = new_fields.FormValues((name, value) for name, value in form.multi_items() if isinstance(value, str))
    return await _inspected(request, service, caller, typed)


async def _inspected(request: Request, service: Service, caller: Caller, typed: new_fields.FormValues) -> Response:
    answered = partial(_page, request, service, caller, typed)
    if not typed.one("model"):
        return await run_in_threadpool(answered, {"model": english("Choose a model.")}, status=422)
    try:
        pairs = (line.partition("=") for line in typed.one("options").splitlines() if line.strip())
        options = {name.strip(): value.strip() for name, _, value in pairs}
        backend = typed.one("backend")
        target = TargetRequest(backend=backend, options=options) if backend else None
        found = await inspect_model(InspectRequest(model=typed.one("model"), target=target), request, service, caller)
    except ValidationError as error:
        sentence = mistakes.sentence(error.errors(include_url=False, include_input=False)[0])
        return await run_in_threadpool(answered, {"options": f"{sentence}."}, status=422)
    except (OnnxBisectError, Problem) as error:
        status, sentence = status_and_sentence(error)
        return await run_in_threadpool(answered, {"": sentence}, status=status)
    return await run_in_threadpool(answered, found=found)


def _page(
    request: Request,
    service: Service,
    caller: Caller,
    typed: new_fields.FormValues,
    complaints: new_fields.Complaints = {},  # noqa: B006 - never changed
    *,
    found: Mapping[str, Any] | None = None,
    status: int = 200,
) -> Response:
    with service.database.session() as session:
        backends = [view.name for view in backend_views(session)]
        offered = new_fields.offered(session, caller, typed)
    return page(
        request,
        "inspect.html.j2",
        caller,
        status=status,
        backends=backends,
        **offered,
        typed=typed,
        complaints=complaints,
        found=found,
    )
