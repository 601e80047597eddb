"""`/jobs/{id}/culprits/{number}/netron`: opens a culprit's model in Netron, after explaining what that shares."""

from typing import Annotated
from urllib.parse import urlencode, urljoin, urlsplit

from fastapi import APIRouter, Query, Request, Response

from onnxbisect.language import english
from onnxbisect.report.contents import culprit_dir_name
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.found import culprit_sha256, document_of, job_of, report_of, search_of
from onnxbisect_api.parameters import RowId, TheAddresses, TheService
from onnxbisect_api.problems import missing
from onnxbisect_api.routes.reports import CulpritNumber
from onnxbisect_api.routes.shared import NETRON, issue_ticket, shared_file
from onnxbisect_api.site.rendering import page

router = APIRouter()

_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


@router.get("/jobs/{job_id}/culprits/{number}/netron", dependencies=[IN_TURN])
def netron(
    request: Request,
    job_id: RowId,
    number: CulpritNumber,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    target: Annotated[int, Query(ge=1, le=32)] = 1,
) -> Response:
    """A page before Netron's site, because the URL for Netron works without a token. Each visit creates a new URL."""
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
        culprit_sha256(search, number, "model.onnx")
        ticket = issue_ticket(session, caller, shared_file(job_id, target, number))
    culprits = document_of(service, report_of(search))["culprits"]
    if number > len(culprits):
        raise missing(english("culprit"))
    # Netron needs an absolute URL; without a public address in the settings, the request's is used
    root = urljoin(str(request.base_url), addresses.job(job_id))
    shared = f"{root}/culprits/{number}/shared/model.onnx?{urlencode({'target': target, 'ticket': ticket})}"
    parts = urlsplit(shared)
    name = f"{culprit_dir_name(number, culprits[number - 1]['ops'])}.onnx"
    loads = parts.scheme == "https" or parts.hostname in _HERE
    return page(
        request,
        "netron.html.j2",
        caller,
        file_name=name,
        number=number,
        job_page=f"/jobs/{job_id}?target={target}#c{number}",
        download=f"/v1/jobs/{job_id}/culprits/{number}/model.onnx?target={target}",
        onward=f"{NETRON}/?{urlencode({'url': shared, 'identifier': name})}" if loads else "",
        local=parts.hostname in _HERE,
        host=parts.netloc,
    )
