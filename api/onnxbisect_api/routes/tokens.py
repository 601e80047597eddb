"""Tokens of the caller's tenant. Those of other tenants are created by `onnx-bisect token`, on the server."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from onnxbisect.language import english
from onnxbisect_api.access import Admin
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import RowId, RowView, TheService
from onnxbisect_db import tokens
from onnxbisect_db.errors import QuotaError
from onnxbisect_db.states import Scope

router = APIRouter(tags=["tokens"])

_Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200)]


#: The latest date that Python can represent in every time zone.
_LAST = datetime(9999, 12, 30, tzinfo=UTC)


class TokenRequest(BaseModel):
    """A new token."""

    model_config = ConfigDict(extra="forbid")

    name: _Name = Field(description="who or what uses it", examples=["ci of net"])
    scopes: tuple[Scope, ...] = Field(
        min_length=1, max_length=len(Scope), description="submit includes read, admin includes everything of the tenant"
    )
    expires_at: AwareDatetime | None = Field(None, description="null for never")

    @field_validator("scopes")
    @classmethod
    def _of_a_tenant(cls, value: tuple[Scope, ...]) -> tuple[Scope, ...]:
        if Scope.OPERATOR in value:
            raise ValueError(
                "an operator's token is made on the server: `onnx-bisect token create NAME --scope operator`"
            )
        return value

    @field_validator("expires_at")
    @classmethod
    def _ahead(cls, value: datetime | None) -> datetime | None:
        if value is not None and value <= datetime.now(UTC):
            raise ValueError("must lie ahead")
        if value is not None and value > _LAST:
            raise ValueError(f"must not lie behind {_LAST:%Y-%m-%d}: leave it out for a token that does not expire")
        return value


class TokenView(RowView):
    """A token without its text."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None = Field(description="when it was last used, to the minute")


class IssuedView(TokenView):
    """A new token. `token` is shown only here."""

    token: str


@router.post("/tokens", status_code=201, summary="Create a token")
def create_token(wanted: TokenRequest, service: TheService, caller: Admin) -> IssuedView:
    """Keep the `token` of the response: the service stores only a hash of it. The tenant's valid tokens are limited
    (`ONNXBISECT_TENANT_TOKENS`).
    """
    most = service.settings.tenant_tokens
    with service.database.transaction() as session:
        if tokens.count_valid(session, caller.tenant) >= most:
            raise QuotaError(f"You have {most} tokens already: revoke one that nobody needs.")
        issued = tokens.issue(
            session, tenant=caller.tenant, name=wanted.name, scopes=wanted.scopes, expires_at=wanted.expires_at
        )
    return IssuedView.of_row(issued.token, token=issued.text)


@router.get("/tokens", summary="List tokens, the newest first")
def list_tokens(service: TheService, caller: Admin) -> list[TokenView]:
    """Revoked tokens are listed, too."""
    with service.database.session() as session:
        return [TokenView.of_row(token) for token in tokens.list_all(session, caller.tenant)]


@router.delete("/tokens/{token_id}", summary="Revoke a token", status_code=204)
def revoke_token(token_id: RowId, service: TheService, caller: Admin) -> None:
    """The token is invalid from the next request on."""
    with service.database.transaction() as session:
        if tokens.revoke(session, token_id, caller.tenant) is None:
            raise missing(english("token"))
