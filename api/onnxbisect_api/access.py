"""Who calls, and what he may: `Authorization: Bearer obk_…`, or the cookie of a browser that has logged in.

A parameter of type `Reader`, `Submitter` or `Admin` makes an operation need that scope, and is the caller; with
`Contributor`, a submitter, it counts as an upload. What belongs to another tenant is not there for the caller: look for
everything by `tenant`, and raise `problems.missing`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from onnxbisect_api.failures import Failures
from onnxbisect_api.origin import demand_own_page
from onnxbisect_api.problems import Problem
from onnxbisect_api.rates import Counters, rate
from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token
from onnxbisect_worker.service import Service

#: Holds the token of whoever logged in to the status page.
COOKIE = "onnxbisect_token"
_CHALLENGE = "WWW-Authenticate"
_REALM = 'Bearer realm="onnx-bisect"'
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


class Door:
    """Looks at tokens, and counts what they are used for."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._database = service.database
        self._counters = Counters(settings.redis_url.get_secret_value() if settings.redis_url is not None else None)
        self._failures = Failures(self._counters, rate("wrong tokens", settings.failures))
        self._requests = rate("requests", settings.requests)
        self._uploads = rate("uploads and jobs", settings.uploads)

    def token(self, text: str, address: str) -> Token | None:
        """The token that this text is; None where it is none that is good."""
        self._failures.demand_few(address, text)
        with self._database.session() as session:
            token = tokens.check(session, text)
            unnoted = token is not None and tokens.use_is_unnoted(session, token)
        if token is None:
            self._failures.wrong(address)
            return None
        self._failures.right(text)
        self._counters.count(self._requests, token.id)
        if unnoted:
            self._database.run(lambda session: tokens.used(session, token.id))
        return token

    def contribution(self, token_id: str) -> None:
        """Count an upload or a new job."""
        self._counters.count(self._uploads, token_id)


def _token(request: Request, credentials: _Credentials) -> Token:
    text = credentials.credentials if credentials is not None else request.cookies.get(COOKIE)
    if not text:
        raise Problem(401, "This needs a token, as in `Authorization: Bearer obk_…`.", {_CHALLENGE: _REALM})
    if credentials is None:
        demand_own_page(request)
    door: Door = request.app.state.door
    token = door.token(text, request.client.host if request.client is not None else "")
    if token is None:
        said = {_CHALLENGE: f'{_REALM}, error="invalid_token"'}
        raise Problem(401, "The token is unknown, expired or revoked: ask an admin for a new one.", said)
    return token


_TheToken = Annotated[Token, Depends(_token)]


def _allowed(scope: Scope) -> Callable[[Token], Caller]:
    def check(token: _TheToken) -> Caller:
        if not tokens.allows(token, scope):
            raise Problem(403, f"This needs a token with the scope {scope.value!r}; this one has {token.scopes}.")
        return Caller(tenant=token.tenant, token_id=token.id, scopes=frozenset(Scope(each) for each in token.scopes))

    return check


Reader = Annotated[Caller, Depends(_allowed(Scope.READ))]
Submitter = Annotated[Caller, Depends(_allowed(Scope.SUBMIT))]


def _counted(request: Request, caller: Submitter) -> Caller:
    door: Door = request.app.state.door
    door.contribution(caller.token_id)
    return caller


Contributor = Annotated[Caller, Depends(_counted)]
Admin = Annotated[Caller, Depends(_allowed(Scope.ADMIN))]
