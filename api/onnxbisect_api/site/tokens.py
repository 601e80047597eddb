"""The page of tokens, for admins. Each form calls the REST operation of the same name."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from onnxbisect.language import english, marked
from onnxbisect_api.access import Admin, Caller
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes import tokens as rest
from onnxbisect_api.routes.tokens import TokenRequest, TokenView
from onnxbisect_api.site.rendering import page
from onnxbisect_db.states import Scope
from onnxbisect_service.service import Service

router = APIRouter()

#: Choices of days after which a token expires.
_DAYS = (7, 30, 90, 365)
_A_NAME = english("Say who or what uses it, in one line.")


@router.get("/tokens")
def token_list_page(request: Request, service: TheService, caller: Admin) -> Response:
    """The page with all tokens, including revoked ones."""
    return _list(request, service, caller)


@router.post("/tokens")
def create(
    request: Request,
    service: TheService,
    caller: Admin,
    scope: Annotated[Scope, Form()],
    name: Annotated[str, Form(max_length=1000)] = "",
    days: Annotated[int, Form(ge=0, le=36_500)] = 0,
) -> Response:
    """Create a token, and show the page with its text, which cannot be shown again."""
    try:
        ends = datetime.now(UTC) + timedelta(days=days) if days else None
        made = rest.create_token(TokenRequest(name=name.strip(), scopes=(scope,), expires_at=ends), service, caller)
    except ValidationError:  # only the name can be invalid, because browsers send valid values of the other fields
        return _list(request, service, caller, name=name, complaint=_A_NAME, status=422)
    return _list(request, service, caller, fresh=made.id, secret=made.token)


@router.post("/tokens/{token_id}/revoke")
def revoke(token_id: RowId, service: TheService, caller: Admin) -> Response:
    """Revoke the token, and redirect to the page of tokens."""
    rest.revoke_token(token_id, service, caller)
    return RedirectResponse("/tokens", 303)


def _list(
    request: Request,
    service: Service,
    caller: Caller,
    *,
    name: str = "",
    complaint: str = "",
    fresh: str = "",
    secret: str = "",
    status: int = 200,
) -> Response:
    return page(
        request,
        "tokens.html.j2",
        caller,
        status=status,
        tokens=rest.list_tokens(service, caller),
        scopes=[scope for scope in Scope if scope is not Scope.OPERATOR],
        days=_DAYS,
        state=_state,
        typed=name,
        complaint=complaint,
        fresh=fresh,
        secret=secret,
    )


def _state(token: TokenView) -> str:
    if token.revoked_at is not None:
        return marked("revoked")
    is_over = token.expires_at is not None and token.expires_at <= datetime.now(UTC)
    return marked("expired") if is_over else marked("good")
