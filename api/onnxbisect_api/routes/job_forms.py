"""Jobs submitted together with their model. `routes.jobs` describes the form, and has all other operations."""

from fastapi import APIRouter, Request, Response

from onnxbisect_api.access import Uploader
from onnxbisect_api.addresses import TheAddresses
from onnxbisect_api.job_form import FormRoute, JobDocument
from onnxbisect_api.job_making import accepted, made
from onnxbisect_api.job_view import SubmittedView
from onnxbisect_api.model_form import ReceivedForm
from onnxbisect_api.model_upload import note_form, receive_form
from onnxbisect_api.parameters import IdempotencyKey, TheService

router = APIRouter(route_class=FormRoute, include_in_schema=False)


@router.post("/jobs", status_code=202)
async def submit(
    request: Request,
    service: TheService,
    caller: Uploader,
    addresses: TheAddresses,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SubmittedView:
    """Creates a job for the model in the form. The model is stored only if the job is created."""
    document = JobDocument(lambda terms: accepted(terms, service, caller))

    def keep(came: ReceivedForm) -> SubmittedView:
        return made(
            document.accepted,
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
