"""Culprits over all jobs."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect_api.access import IN_TURN, Caller, Reader, Submitter
from onnxbisect_api.addresses import TheAddresses
from onnxbisect_api.culprit_files import FileName, answered
from onnxbisect_api.culprit_issue import issue
from onnxbisect_api.culprit_view import CulpritDetails, CulpritView, culprit_details, culprit_views
from onnxbisect_api.job_request import ONE_LINE, BackendName
from onnxbisect_api.labels import TheLabels
from onnxbisect_api.names import SHA256_PATTERN, RowId
from onnxbisect_api.pages import PagedRows
from onnxbisect_api.problems import missing
from onnxbisect_api.routes.reports import FILE
from onnxbisect_api.service import TheService
from onnxbisect_db import culprits
from onnxbisect_db.culprit_versions import versions_of
from onnxbisect_db.culprits import Filter
from onnxbisect_db.states import CulpritState
from onnxbisect_db.tables import Culprit

router = APIRouter(tags=["culprits"])


#: Literals, because errors about `CulpritState` would name Python members.
OpenOrKnown = Literal["open", "known"]


class CulpritChange(BaseModel):
    """The settable state of a culprit that is not fixed."""

    model_config = ConfigDict(extra="forbid")

    state: OpenOrKnown


@router.get("/culprits", summary="List the culprits of all jobs, the newest first")
def listed(
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    paged: PagedRows,
    labels: TheLabels,
    state: CulpritState | None = None,
    text: Annotated[
        str | None, Query(max_length=200, pattern=ONE_LINE, description="in the identity, the message or the cause")
    ] = None,
    model: Annotated[str | None, Query(pattern=SHA256_PATTERN, description="SHA-256 of a model that has it")] = None,
    target: Annotated[BackendName | None, Query(description="a backend that it was found on")] = None,
) -> list[CulpritView]:
    """The list is paginated: the `Link` header has the URL of the next page. Only labels of existing jobs match."""
    wanted = Filter(state=state, text=text or None, model_sha256=model, backend=target, labels=labels)
    with service.database.session() as session:
        page = culprits.listed(session, caller.tenant, wanted, after=paged.after, limit=paged.limit)
        views = culprit_views(session, page.rows, addresses)
    paged.next_is(page.after)
    return views


@router.get("/culprits/{culprit_id}", summary="A culprit with its occurrences")
def shown(culprit_id: RowId, service: TheService, caller: Reader, addresses: TheAddresses) -> CulpritDetails:
    """The culprit contains the latest verdict of each version of each target."""
    with service.database.session() as session:
        return culprit_details(session, found(session, culprit_id, caller), addresses)


@router.patch("/culprits/{culprit_id}", summary="Mark a culprit as known or open")
def change(
    culprit_id: RowId, wanted: CulpritChange, service: TheService, caller: Submitter, addresses: TheAddresses
) -> CulpritDetails:
    """Marks a culprit as known or open. A fixed culprit is opened again automatically when a job finds it again."""
    known = wanted.state == "known"
    service.database.run(lambda session: culprits.set_known(session, culprit_id, caller.tenant, known=known))
    return shown(culprit_id, service, caller, addresses)


@router.get(
    "/culprits/{culprit_id}/issue.md",
    summary="The text of an issue for the compiler's vendor",
    response_class=Response,
    responses={200: {"description": "The text", "content": {"text/markdown": {"schema": {"type": "string"}}}}},
    dependencies=[IN_TURN],
)
def issue_text(culprit_id: RowId, service: TheService, caller: Reader) -> Response:
    """Steps to reproduce, environment, and the end of the log, without names of models. The log may name nodes."""
    with service.database.session() as session:
        culprit = found(session, culprit_id, caller)
        refused = culprits.reproducing(session, culprit.id) or culprits.lately(session, culprit.id, limit=1)[0]
        versions = versions_of(session, [culprit.id])[culprit.id]
    try:
        text = issue(service, culprit, refused, versions)
    except FileNotFoundError:  # its job was deleted during this request
        raise missing(english("culprit")) from None
    return Response(text.encode("utf-8", "backslashreplace"), media_type="text/markdown")


@router.get(
    "/culprits/{culprit_id}/{name}",
    summary="A file of a culprit: model, data or compiler log",
    response_class=Response,
    responses=FILE,
    dependencies=[IN_TURN],
)
def file(culprit_id: RowId, name: FileName, request: Request, service: TheService, caller: Reader) -> Response:
    """The file comes from the newest version of a compiler that refused the culprit in a job."""
    with service.database.session() as session:
        kept = culprits.reproducing(session, found(session, culprit_id, caller).id)
    sha256 = None if kept is None else (kept.files or {}).get(name)
    if sha256 is None:
        raise missing(english("file of this culprit"))
    return answered(request, service, sha256, name)


def found(session: Session, culprit_id: str, caller: Caller) -> Culprit:
    """The culprit; a 404 if the caller's tenant has no such culprit."""
    culprit = culprits.get(session, culprit_id, caller.tenant)
    if culprit is None:
        raise missing(english("culprit"))
    return culprit
