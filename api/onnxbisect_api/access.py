"""Who calls, and what he may: `Authorization: Bearer obk_…`.

A parameter of type `Reader`, `Submitter` or `Admin` makes an operation need that scope, and is the caller. What belongs
to another tenant is not there for him: look for everything by `tenant`, and raise `problems.missing`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from onnxbisect_api.problems import Problem
from onnxbisect_api.service import TheService
from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token
from onnxbisect_worker.service import Service

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="onnx-bisect"'}
_scheme = HTTPBearer(
    scheme_name="token", bearerFormat="obk_…", description="made by `onnx-bisect token create`", auto_error=False
)
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Whose token it is. `token_id` is no secret."""

    tenant: str
    token_id: str
    scopes: frozenset[Scope]


def _caller(request: Request, service: TheService, credentials: _Credentials) -> Token:
    if credentials is None:
        raise Problem(401, "This needs a token, as in `Authorization: Bearer obk_…`.", _CHALLENGE)
    token = _checked(service, credentials.credentials)
    if token is None:
        said = {"WWW-Authenticate": _CHALLENGE["WWW-Authenticate"] + ', error="invalid_token"'}
        raise Problem(401, "The token is unknown, expired or revoked: ask an admin for a new one.", said)
    return token


def _checked(service: Service, text: str) -> Token | None:
    with service.database.session() as session:
        token = tokens.check(session, text)
        unnoted = token is not None and tokens.use_is_unnoted(session, token)
    if token is not None and unnoted:
        service.database.run(lambda session: tokens.used(session, token.id))
    return token


_TheToken = Annotated[Token, Depends(_caller)]


def _allowed(scope: Scope) -> Callable[[Token], Caller]:
    def check(token: _TheToken) -> Caller:
        if not tokens.allows(token, scope):
            raise Problem(403, f"This needs a token with the scope {scope.value!r}; this one has {token.scopes}.")
        return Caller(tenant=token.tenant, token_id=token.id, scopes=frozenset(Scope(each) for each in token.scopes))

    return check


Reader = Annotated[Caller, Depends(_allowed(Scope.READ))]
Submitter = Annotated[Caller, Depends(_allowed(Scope.SUBMIT))]
Admin = Annotated[Caller, Depends(_allowed(Scope.ADMIN))]
