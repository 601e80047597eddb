"""A culprit's model for Netron's site, which runs in a browser without a session here, and may alone read the response.

The URL has a ticket in place of a token: it gives another program one file for a limited time. It contains the id of a
token, the time of its end, and a seal of both the end and the ticket's purpose. It is invalid when the token is, and
does not reveal the token's secret.
"""

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from onnxbisect_api.access import AccessControl, Caller
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes.reports import FILE, CulpritNumber, TargetNumber
from onnxbisect_api.views.found import culprit_sha256, job_of, search_of, stored
from onnxbisect_db import tokens
from onnxbisect_db.database import now
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token

router = APIRouter(tags=["reports"])

#: Draws models in the browser, without sending them to its server.
NETRON = "https://netron.app"
_MODEL: Final = "model.onnx"


@router.get(
    "/jobs/{job_id}/culprits/{number}/shared/model.onnx",
    summary="A culprit's model, for a viewer with a ticket",
    response_class=Response,
    responses=FILE,
)
async def get_shared_model(
    job_id: RowId,
    number: CulpritNumber,
    request: Request,
    service: TheService,
    ticket: Annotated[str, Query(max_length=200, description="made by the page of the job")],
    target: TargetNumber = None,
) -> Response:
    """The job's page links to this URL with a ticket in place of a token; the ticket is valid for an hour."""
    access_control: AccessControl = request.app.state.access_control

    def found() -> tuple[str, str]:
        with service.database.session() as session:
            caller = ticket_holder(session, shared_file(job_id, target, number), ticket)
            search = search_of(job_of(session, job_id, caller), target)
            return caller.tenant, culprit_sha256(search, number, _MODEL)

    tenant, sha256 = await run_in_threadpool(found)
    headers = {
        "Access-Control-Allow-Origin": NETRON,
        "Content-Disposition": f'attachment; filename="{_MODEL}"',
        "Vary": "Origin",
    }
    async with access_control.file_turns.turn(tenant):
        return await run_in_threadpool(stored, service, sha256, "application/octet-stream", headers)


def shared_file(job_id: str, target: int | None, number: int) -> str:
    """The text that identifies the file in its ticket."""
    return f"{job_id} {target or ''} {number} {_MODEL}"


#: How long a ticket is valid.
GOOD_FOR = timedelta(hours=1)
_REFUSED = "This address is not good, or not any more: open it again from the page of the job."


def issue_ticket(session: Session, caller: Caller, what: str) -> str:
    """A ticket for `what`, a line of text that identifies the file."""
    until = int((now(session) + GOOD_FOR).timestamp())
    token = session.get_one(Token, caller.token_id)
    return f"{token.id}.{until}.{tokens.seal(token, _sealed(what, until))}"


def ticket_holder(session: Session, what: str, ticket: str) -> Caller:
    """The caller that the ticket was issued to, with the scope `read`; a 403 if it is not for `what` or has expired."""
    token_id, _, rest = ticket.partition(".")
    until, _, seal = rest.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) <= 12) or int(until) <= now(session).timestamp():
        raise Problem(403, _REFUSED)
    token = tokens.token_of_seal(session, token_id, _sealed(what, int(until)), seal)
    if token is None or not tokens.allows(token, Scope.READ):
        raise Problem(403, _REFUSED)
    return Caller(tenant=token.tenant, token_id=token.id, scopes=frozenset({Scope.READ}))


def _sealed(what: str, until: int) -> str:
    """The text to seal. Its first word differs from that of other sealed texts, such as those of badges."""
    return f"ticket\n{until}\n{what}"
