"""A new job: a model that is uploaded here or was before, and the compilers that are asked.

A script uploads while the rest is filled in, and then sends the same form without the file. Without scripts the form
brings the file. Whatever is wrong with the form, a model that has come stays.
"""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from onnxbisect.errors import OnnxBisectError
from onnxbisect_api import targets
from onnxbisect_api.access import Caller, Contributor, Submitter, Uploader
from onnxbisect_api.addresses import Addresses, TheAddresses
from onnxbisect_api.backend_view import BackendView, OptionView, backend_views
from onnxbisect_api.job_form import FormRoute
from onnxbisect_api.job_making import accepted, made
from onnxbisect_api.model_form import Form, NoModel
from onnxbisect_api.model_upload import note_form, receive_form
from onnxbisect_api.names import SHA256_PATTERN
from onnxbisect_api.problems import Problem, told
from onnxbisect_api.service import TheService
from onnxbisect_api.site.new_fields import Complaints, FieldsError, Typed, option_field, terms
from onnxbisect_api.site.rendering import page
from onnxbisect_db import models, workers
from onnxbisect_db.errors import UnknownModelError
from onnxbisect_db.tables import Model
from onnxbisect_service.service import Service

_forms = APIRouter(route_class=FormRoute)

#: Models that were uploaded last, to choose among.
_RECENT = 30
#: Options of a backend that are shown at once.
_FEW = 6
_MORE = ("budget_calls", "budget_seconds", "seconds", "recheck")


@_forms.post("/new")
async def bring(request: Request, service: TheService, caller: Uploader, addresses: TheAddresses) -> Response:
    """The form with its file, read as it comes."""
    typed = Typed()

    def keep(came: Form) -> str:
        with service.database.transaction() as session:
            return note_form(session, caller.tenant, came).sha256

    try:
        typed.add("model", await receive_form(request, service, caller.tenant, keep, texts=typed))
    except NoModel:  # one that was uploaded before, then
        pass
    except (OnnxBisectError, Problem) as error:
        status, sentence = told(error)
        return await run_in_threadpool(_page, request, service, caller, typed, {"model": sentence}, status)
    return await run_in_threadpool(_submitted, request, service, caller, addresses, typed)


router = APIRouter()
router.include_router(_forms)


@router.get("/new")
def empty(
    request: Request,
    service: TheService,
    caller: Submitter,
    model: Annotated[str, Query(pattern=SHA256_PATTERN)] = "",
    backend: Annotated[list[Annotated[str, Query(max_length=128)]], Query(max_length=32)] = [],  # noqa: B006
) -> Response:
    """The page. A link may choose the model and the backends."""
    chosen = Typed([("model", model), *(("backend", name) for name in backend)])
    return _page(request, service, caller, chosen)


@router.post("/new")
async def submit(request: Request, service: TheService, caller: Contributor, addresses: TheAddresses) -> Response:
    """The form, of a model that is here."""
    async with request.form() as form:
        typed = Typed((name, value) for name, value in form.multi_items() if isinstance(value, str))
    return await run_in_threadpool(_submitted, request, service, caller, addresses, typed)


def _submitted(request: Request, service: Service, caller: Caller, addresses: Addresses, typed: Typed) -> Response:
    """To the new job's page; or the form again, with what is wrong beside its fields."""
    with service.database.session() as session:
        offered = workers.slots(session)
        defaults = {view.name: _defaults(view) for view in backend_views(session)}
    lacks = {} if typed.one("model") else {"model": "Choose a model."}
    try:
        wanted = accepted(terms(typed, defaults, lambda target: targets.checked([target], offered)), service, caller)
        if lacks:
            raise FieldsError(lacks)
        view = made(wanted, typed.one("model"), service, caller, addresses, idempotency_key=None)
    except FieldsError as wrong:
        return _page(request, service, caller, typed, {**wrong.complaints, **lacks}, 422)
    except UnknownModelError as error:
        return _page(request, service, caller, typed, {"model": str(error)}, 422)
    except (OnnxBisectError, Problem) as error:
        status, sentence = told(error)
        return _page(request, service, caller, typed, {"": sentence}, status)
    return RedirectResponse(f"/jobs/{view.id}", 303)


def _page(
    request: Request,
    service: Service,
    caller: Caller,
    typed: Typed,
    complaints: Complaints = {},  # noqa: B006 - nobody changes it
    status: int = 200,
) -> Response:
    with service.database.session() as session:
        backends = backend_views(session)
        recent = list(models.listed(session, caller.tenant, limit=_RECENT).models)
        chosen = models.get(session, typed.one("model"), caller.tenant)
    return page(
        request,
        "new.html.j2",
        caller,
        status=status,
        ready=[view for view in backends if view.usable],
        waiting=[view for view in backends if not view.usable],
        recent=_with(recent, chosen),
        chosen="" if chosen is None else chosen.sha256,
        typed=typed,
        complaints=complaints,
        offered=_offered,
        # What is said of a field is not hidden behind a heading.
        opened=lambda view, rest: any(option_field(view.name, option.name) in complaints for option in rest),
        chooses=lambda views: any(view.name in typed.all("backend") for view in views),
        more_opened=any(name in complaints or typed.one(name) for name in _MORE),
        field=option_field,
        few=_FEW,
        most_seconds=service.settings.compile_seconds,
    )


def _with(recent: list[Model], chosen: Model | None) -> list[Model]:
    known = {model.sha256 for model in recent}
    return recent if chosen is None or chosen.sha256 in known else [chosen, *recent]


def _defaults(view: BackendView) -> Mapping[str, str]:
    return {option.name: option.default for option in _offered(view)}


def _offered(view: BackendView) -> list[OptionView]:
    """What a stranger may set."""
    return [option for option in view.options if option.choices or not option.local]
