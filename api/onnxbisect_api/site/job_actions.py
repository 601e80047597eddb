"""Actions on a job's page: forms that work without scripts, and redirect back."""

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from onnxbisect_api.access import IN_TURN, Contributor, Submitter
from onnxbisect_api.addresses import TheAddresses
from onnxbisect_api.found import job_of
from onnxbisect_api.job_making import accepted, asked_before, made
from onnxbisect_api.job_request import RepairRequest
from onnxbisect_api.names import RowId
from onnxbisect_api.routes import jobs
from onnxbisect_api.service import TheService

router = APIRouter()


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> Response:
    """Cancel the job like `POST /v1/jobs/{job_id}/cancel`, and redirect to its page."""
    jobs.cancel(job_id, service, caller, addresses)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: RowId, service: TheService, caller: Submitter, addresses: TheAddresses) -> Response:
    """Retry the job like `POST /v1/jobs/{job_id}/retry`, and redirect to its page."""
    jobs.retry(job_id, service, caller, addresses)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/repair")
def repair(job_id: RowId, service: TheService, caller: Contributor, addresses: TheAddresses) -> Response:
    """Create a job like this one that repairs what it finds, and redirect to its page.

    What the compiler has answered is known, so only the repair takes its time.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        before, model = asked_before(job), job.model_sha256
    wanted = accepted(before.model_copy(update={"repair": before.repair or RepairRequest()}), service, caller)
    view = made(wanted, model, service, caller, addresses, idempotency_key=None)
    return RedirectResponse(f"/jobs/{view.id}", 303)


@router.post("/jobs/{job_id}/delete", dependencies=[IN_TURN])
def delete(job_id: RowId, service: TheService, caller: Submitter) -> Response:
    """Delete the job like `DELETE /v1/jobs/{job_id}`, and redirect to the list of jobs."""
    jobs.delete(job_id, service, caller)
    return RedirectResponse("/jobs", 303)
