"""Uploads: models, and files that jobs name, such as calibration samples.

Both are uploaded once, named by their SHA-256, and visible only to the tenant that uploaded them.
"""

from collections.abc import Callable
from datetime import datetime
from email.message import Message
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from onnxbisect.language import english
from onnxbisect_api.access import IN_TURN, Reader, Submitter, Uploader
from onnxbisect_api.errors.problems import Problem, missing
from onnxbisect_api.parameters import Addresses, RowView, Sha256, TheAddresses, TheService
from onnxbisect_api.uploads.model_form import ReceivedForm
from onnxbisect_api.uploads.model_upload import ModelFile, note, note_form, receive_form
from onnxbisect_api.uploads.receiving import DIGESTS, demand_length, quota_named, receive, upload_quota
from onnxbisect_api.views import listing
from onnxbisect_db import models, retention, uploads
from onnxbisect_db.files import StoredFile
from onnxbisect_db.tables import StoredModel
from onnxbisect_service.service import Service

router = APIRouter(tags=["models"])
files_router = APIRouter(tags=["files"])

_RAW = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}
_FORM = {
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["model"],
                "properties": {
                    "model": {"type": "string", "format": "binary"},
                    "data": {"type": "array", "items": {"type": "string", "format": "binary"}},
                },
            }
        }
    },
    "required": True,
}


class ModelView(RowView):
    """An uploaded model."""

    sha256: str = Field(
        description="of the ONNX file and then of its external data, by location; what jobs and reports name it by"
    )
    size: int = Field(description="bytes of all its files")
    name: str = Field(description="what it was called when it was uploaded last")
    files: dict[str, str] = Field(description="SHA-256 of each file of external data, by location")
    created_at: datetime
    used_at: datetime = Field(description="when it was last uploaded or named by a job")
    url: str


class UploadedView(ModelView):
    """A model that was uploaded just now."""

    new: bool = Field(description="whether it was not here before")


@router.put(
    "/models",
    summary="Upload an ONNX file",
    openapi_extra={"requestBody": _RAW},
    responses={201: {"model": UploadedView, "description": "It was not here before"}},
)
async def upload_model(
    request: Request,
    response: Response,
    service: TheService,
    caller: Uploader,
    addresses: TheAddresses,
    name: Annotated[str | None, Query(description="what to call it; else as `Content-Disposition` says")] = None,
) -> UploadedView:
    """The body is the file itself. `HEAD /v1/models/{sha256}` tells whether an upload is needed. A model with external
    data is uploaded with `POST`.
    """
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise Problem(415, "The body of PUT is the ONNX file itself, as `curl -T` sends it: send forms with POST.")
    left = await run_in_threadpool(upload_quota, service, caller.tenant)
    demand_length(request, left)
    if name is None:  # it is in this header, as `filename` or `filename*`
        header = Message()
        header["Content-Disposition"] = request.headers.get("content-disposition", "")
        name = header.get_filename("")
    file_name = name
    file = ModelFile(service.files.begin(limit=left.limit, beside=DIGESTS))

    def finish() -> UploadedView:
        upload_quota(service, caller.tenant).demand(file.seal().size)
        if not file.seal().size:
            raise Problem(422, "The body is empty: it is to be the ONNX file.")
        stored = file.finish()
        return _keep(
            service,
            caller.tenant,
            addresses,
            stored.sha256,
            lambda session: note(session, caller.tenant, stored, file_name),
        )

    with quota_named(left):
        return _answered(response, await receive(request, file, finish))


@router.post(
    "/models",
    summary="Upload a model with its external data",
    openapi_extra={"requestBody": _FORM},
    responses={201: {"model": UploadedView, "description": "It was not here before"}},
)
async def upload_model_files(
    request: Request, response: Response, service: TheService, caller: Uploader, addresses: TheAddresses
) -> UploadedView:
    """The body is a form: the ONNX file in the field `model`, each data file in a field `data` with its location in the
    model as file name, such as `weights/a.bin`. `HEAD /v1/models/{sha256}` tells whether an upload is needed; the
    SHA-256 is that of all bytes: the ONNX file, then the data files, sorted by location.
    """

    def keep(came: ReceivedForm) -> UploadedView:
        def noted(session: Session) -> StoredModel:
            return note_form(session, caller.tenant, came)

        return _keep(service, caller.tenant, addresses, came.sha256, noted)

    return _answered(response, await receive_form(request, service, caller.tenant, keep))


@router.get("/models", summary="List models, the newest first")
def list_models(service: TheService, caller: Reader, addresses: TheAddresses, paged: listing.Paged) -> list[ModelView]:
    """The list is paginated: the `Link` header has the URL of the next page."""
    after = listing.read_cursor(paged.after) if paged.after is not None else None
    with service.database.session() as session:
        page = models.list_page(session, caller.tenant, after=after, limit=paged.limit)
    paged.next_is(listing.write_cursor(*page.after) if page.after is not None else None)
    return [ModelView.of_row(model, url=addresses.model(model.sha256)) for model in page.rows]


@router.get("/models/{sha256}", summary="An uploaded model", dependencies=[IN_TURN])
def get_model(sha256: Sha256, service: TheService, caller: Reader, addresses: TheAddresses) -> ModelView:
    """404 unless your tenant uploaded the model, so that clients cannot find out what others have."""
    with service.database.session() as session:
        model = models.get(session, sha256, caller.tenant)
    # `touch` resets the files' age, so that they are not deleted before a job can use the model.
    if model is None or not all(service.files.touch(each) for each in model.all_files):
        raise missing(english("model"))
    return ModelView.of_row(model, url=addresses.model(sha256))


@router.head("/models/{sha256}", summary="Whether a model exists", response_class=Response, dependencies=[IN_TURN])
def model_exists(sha256: Sha256, service: TheService, caller: Reader, addresses: TheAddresses) -> None:
    """200 if the model is stored for you already, else 404."""
    get_model(sha256, service, caller, addresses)


@router.delete("/models/{sha256}", summary="Delete a model", status_code=204, dependencies=[IN_TURN])
def delete_model(sha256: Sha256, service: TheService, caller: Submitter) -> None:
    """The model's data files are deleted, too. A model that a job needs is kept until the job is deleted."""

    def remove(session: Session) -> list[str]:
        gone = models.remove(session, sha256, caller.tenant)
        if gone is None:
            raise missing(english("model"))
        return retention.release(session, gone)

    unneeded = service.reserve.run(remove)
    retention.discard(service.files, unneeded)


def _keep(
    service: Service, tenant: str, addresses: Addresses, sha256: str, noted: Callable[[Session], StoredModel]
) -> UploadedView:
    with service.database.transaction() as session:
        new = models.get(session, sha256, tenant) is None
        model = noted(session)
    return UploadedView.of_row(model, url=addresses.model(sha256), new=new)


def _answered(response: Response, view: UploadedView) -> UploadedView:
    response.status_code = 201 if view.new else 200
    response.headers["Location"] = view.url
    return view


class FileView(BaseModel):
    """An uploaded file."""

    sha256: str = Field(description="what jobs name it by")
    size: int
    url: str


@files_router.put(
    "/files", summary="Upload a file for jobs, such as a calibration sample", openapi_extra={"requestBody": _RAW}
)
async def upload_file(request: Request, service: TheService, caller: Uploader, addresses: TheAddresses) -> FileView:
    """The body is the file itself, such as a sample of the model's inputs for the `calibration` of a job."""
    left = await run_in_threadpool(upload_quota, service, caller.tenant)
    demand_length(request, left)
    file = service.files.begin(limit=left.limit, beside=DIGESTS)

    def finish() -> StoredFile:
        upload_quota(service, caller.tenant).demand(file.seal().size)
        stored = file.finish()
        with service.database.transaction() as session:
            uploads.keep(session, tenant=caller.tenant, sha256=stored.sha256, size=stored.size)
        return stored

    with quota_named(left):
        stored = await receive(request, file, finish)
    return FileView(sha256=stored.sha256, size=stored.size, url=addresses.file(stored.sha256))


@files_router.get("/files/{sha256}", summary="An uploaded file", dependencies=[IN_TURN])
def get_file(sha256: Sha256, service: TheService, caller: Reader, addresses: TheAddresses) -> FileView:
    """404 unless your tenant uploaded the file, so that clients cannot find out what others have."""
    with service.database.session() as session:
        upload = uploads.get(session, sha256, caller.tenant)
    # `touch` resets the file's age, so that it is not deleted before a job can use it.
    if upload is None or not service.files.touch(sha256):
        raise missing(english("file"))
    return FileView(sha256=upload.sha256, size=upload.size, url=addresses.file(upload.sha256))


@files_router.head("/files/{sha256}", summary="Whether a file exists", response_class=Response, dependencies=[IN_TURN])
def file_exists(sha256: Sha256, service: TheService, caller: Reader, addresses: TheAddresses) -> None:
    """200 if the file is stored for you already, else 404."""
    get_file(sha256, service, caller, addresses)


@files_router.delete("/files/{sha256}", summary="Delete a file", status_code=204, dependencies=[IN_TURN])
def delete_file(sha256: Sha256, service: TheService, caller: Submitter) -> None:
    """A file that jobs use is kept until these jobs are deleted."""
    with service.database.transaction() as session:
        if not uploads.remove(session, sha256, caller.tenant):
            raise missing(english("file"))
        unneeded = retention.release(session, [sha256])
    retention.discard(service.files, unneeded)
