"""Files that jobs name, such as calibration samples: named by their SHA-256, for their uploader only."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from onnxbisect.language import english
from onnxbisect_api.access import IN_TURN, Reader, Submitter, Uploader
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import Sha256, TheAddresses, TheService
from onnxbisect_api.uploads.receiving import DIGESTS, demand_length, quota_named, receive, upload_quota
from onnxbisect_db import retention, uploads
from onnxbisect_db.files import StoredFile

router = APIRouter(tags=["files"])

_RAW = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}


class FileView(BaseModel):
    """An uploaded file."""

    sha256: str = Field(description="what jobs name it by")
    size: int
    url: str


@router.put(
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


@router.get("/files/{sha256}", summary="An uploaded file", dependencies=[IN_TURN])
def get_file(sha256: Sha256, service: TheService, caller: Reader, addresses: TheAddresses) -> FileView:
    """404 unless your tenant uploaded the file, so that clients cannot find out what others have."""
    with service.database.session() as session:
        upload = uploads.get(session, sha256, caller.tenant)
    # `touch` resets the file's age, so that it is not deleted before a job can use it.
    if upload is None or not service.files.touch(sha256):
        raise missing(english("file"))
    return FileView(sha256=upload.sha256, size=upload.size, url=addresses.file(upload.sha256))


@router.head("/files/{sha256}", summary="Whether a file exists", response_class=Response, dependencies=[IN_TURN])
def file_exists(sha256: Sha256, service: TheService, caller: Reader, addresses: TheAddresses) -> None:
    """200 if the file is stored for you already, else 404."""
    get_file(sha256, service, caller, addresses)


@router.delete("/files/{sha256}", summary="Delete a file", status_code=204, dependencies=[IN_TURN])
def delete_file(sha256: Sha256, service: TheService, caller: Submitter) -> None:
    """A file that jobs use is kept until these jobs are deleted."""
    with service.database.transaction() as session:
        if not uploads.remove(session, sha256, caller.tenant):
            raise missing(english("file"))
        unneeded = retention.release(session, [sha256])
    retention.discard(service.files, unneeded)
