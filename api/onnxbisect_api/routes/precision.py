"""The nodes of a job that must stay precise: the document, pictures, models, and what vendors' compilers are told."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.found import PrecisionFileName, job_of, precision_sha256, search_of, stored
from onnxbisect_api.headers import unchanged
from onnxbisect_api.parameters import RowId, TheService

router = APIRouter(tags=["precision"])

#: Media types of what a browser shows; the rest is downloaded.
_SHOWN = {"json": "application/json", "md": "text/markdown", "svg": "image/svg+xml", "txt": "text/plain"}
#: A model may have taken over the process that wrote it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {
            **{media_type: {"schema": {"type": "string"}} for media_type in _SHOWN.values()},
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string"}},
        },
    },
    304: {"description": "The client has it"},
}


@router.get(
    "/jobs/{job_id}/precision/{name}",
    summary="A file on the nodes that must stay precise",
    response_class=Response,
    responses=_FILE,
    dependencies=[IN_TURN],
)
def get_precision_file(
    job_id: RowId,
    name: PrecisionFileName,
    request: Request,
    service: TheService,
    caller: Reader,
    target: Annotated[int | None, Query(ge=1, le=32, description="which of several targets, from 1")] = None,
) -> Response:
    """`precision.json`, or another file that `onnx-bisect precision` writes: the pictures, the models, and the
    configurations of vendors' compilers.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        sha256 = precision_sha256(job, search_of(job, target), name)
    media_type = _SHOWN.get(name.rpartition(".")[2], "application/octet-stream")
    placed = "attachment" if media_type == "application/octet-stream" else "inline"
    headers = {
        "ETag": f'"{sha256}"',
        "Content-Disposition": f'{placed}; filename="{name}"',
        "Content-Security-Policy": _POLICY,
    }
    return unchanged(request, headers) or stored(service, sha256, media_type, headers)
