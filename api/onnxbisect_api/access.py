"""Authentication and scopes: `Authorization: Bearer obk_…`, or the cookie of a logged-in browser.

An operation requires a scope by a parameter of type `Reader`, `Submitter`, `Admin` or `Operator`, which is the caller.
`Contributor` is a `Submitter` whose request counts as an upload or a new job. `Uploader` and `Inspector` are a
`Contributor` and `Listener` is a `Reader` whose number of open requests is limited. A route that reads or deletes
stored files has `IN_TURN` among its dependencies. All limits are those of a tenant, however many tokens it has.

Callers must not see data of another tenant: operations query everything by `tenant`, and raise `problems.missing` for
anything else.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.limits import AtATime, Counters, Turns, counted_address, rate
from onnxbisect_db import tokens
from onnxbisect_db.states import Scope
from onnxbisect_db.tables import Token
from onnxbisect_service.service import Service

#: The cookie with the session id of a browser that has logged in to the pages.
COOKIE = "onnxbisect_session"
_CHALLENGE = "WWW-Authenticate"
#: Methods that change nothing.
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED = "The token is unknown, expired or revoked: ask an admin for a new one."
_REALM = 'Bearer realm="onnx-bisect"'
_scheme = HTTPBearer(
    scheme_name="token", bearerFormat="obk_…", description="made by `onnx-bisect token create`", auto_error=False
)
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The tenant and the scopes of a request's token. `token_id` is no secret."""

    tenant: str
    token_id: str
    scopes: frozenset[Scope]


class AccessControl:
    """Checks the tokens and sessions of requests, and enforces the rate limits."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._database = service.database
        self._counters = Counters(settings.redis_url.get_secret_value() if settings.redis_url is not None else None)
        self._failures = rate("wrong tokens", settings.failures)
        self._requests = rate("requests", settings.requests)
        self._uploads = rate("uploads and jobs", settings.uploads)
        self.open_uploads = AtATime("uploads", of_tenant=settings.tenant_uploads, most=settings.open_uploads)
        self.open_streams = AtATime("streams", of_tenant=settings.tenant_streams, most=settings.connections)
        self.stream_turns = Turns("streams", of_tenant=2, most=4)
        self.open_inspections = AtATime("inspections", of_tenant=8, most=64)
        self.inspection_turns = Turns("inspections", of_tenant=1, most=4)
        self.open_files = AtATime("requests for files and reports", of_tenant=32, most=256)
        self.file_turns = Turns("requests for files and reports", of_tenant=4, most=8)

    def token(self, text: str, address: str) -> Token | None:
        """The token with this text; None if it is invalid, and a 429 if the address sent too many invalid ones.

        A valid token is always accepted, because nobody can guess its 256 random bits.
        """
        found = self._used(lambda session: tokens.check(session, text))
        if found is None:
            self._counters.count(self._failures, counted_address(address))
        return found

    def token_of_session(self, text: str) -> Token | None:
        """The token of a browser's session; None if the session has ended. Expired cookies do not count as wrong
        tokens.
        """
        return self._used(lambda session: tokens.token_of_session(session, text))

    def begin_session(self, token: Token) -> str:
        """Create a session for the token, and return the cookie's value."""
        return self._database.run(lambda session: tokens.begin_session(session, token.id))

    def end_session(self, text: str) -> None:
        """End the session with this cookie."""
        self._database.run(lambda session: tokens.end_session(session, text))

    def _used(self, find: Callable[[Session], Token | None]) -> Token | None:
        with self._database.session() as session:
            token = find(session)
            unnoted = token is not None and tokens.use_is_unnoted(session, token)
        if token is None:
            return None
        self._counters.count(self._requests, token.tenant)
        if unnoted:
            with suppress(OperationalError):  # reading must work on a full disk
                self._database.run(lambda session: tokens.note_use(session, token.id))
        return token

    def contribution(self, tenant: str) -> None:
        """Count an upload or a new job; a 429 beyond the tenant's rate."""
        self._counters.count(self._uploads, tenant)


def _token(request: Request, credentials: _Credentials) -> Token:
    access_control: AccessControl = request.app.state.access_control
    if credentials is not None and credentials.credentials:
        token = access_control.token(credentials.credentials, address_of(request))
    elif request.cookies.get(COOKIE):
        demand_own_page(request)
        token = access_control.token_of_session(request.cookies[COOKIE])
    else:
        raise Problem(401, english("This needs a token, as in `Authorization: Bearer obk_…`."), {_CHALLENGE: _REALM})
    if token is None:
        headers = {_CHALLENGE: f'{_REALM}, error="invalid_token"'}
        raise Problem(401, _REFUSED, headers)
    return token


def demand_own_page(request: Request) -> None:
    """Raise a 403 for a request that changes something and is not shown to come from this site's pages.

    Browsers send `Sec-Fetch-Site`, which pages cannot forge, or over plain HTTP only `Origin`.
    """
    if request.method in _HARMLESS:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin", "")
    own = site == "same-origin" if site is not None else urlsplit(origin).netloc == request.headers.get("host")
    if not own:
        raise Problem(403, english("This request does not come from a page of this service."))


def address_of(request: Request) -> str:
    """The client's address; behind a trusted proxy, the one that the proxy reports."""
    return request.client.host if request.client is not None else ""


_TheToken = Annotated[Token, Depends(_token)]


def _allowed(scope: Scope) -> Callable[[Token], Caller]:
    def check(token: _TheToken) -> Caller:
        if not tokens.allows(token, scope):
            raise Problem(
                403,
                english(
                    "This needs a token with the scope {value}; this one has {scopes}.",
                    value=repr(scope.value),
                    scopes=token.scopes,
                ),
            )
        return Caller(tenant=token.tenant, token_id=token.id, scopes=frozenset(Scope(each) for each in token.scopes))

    return check


Reader = Annotated[Caller, Depends(_allowed(Scope.READ))]
Submitter = Annotated[Caller, Depends(_allowed(Scope.SUBMIT))]


def _counted(request: Request, caller: Submitter) -> Caller:
    access_control: AccessControl = request.app.state.access_control
    access_control.contribution(caller.tenant)
    return caller


Contributor = Annotated[Caller, Depends(_counted)]


def _at_a_time(
    limit: Callable[[AccessControl], AtATime], caller_of: Callable[..., Caller]
) -> Callable[..., AsyncIterator[Caller]]:
    """The caller of `caller_of`, whose number of open requests has this limit."""

    async def limited(request: Request, caller: Annotated[Caller, Depends(caller_of)]) -> AsyncIterator[Caller]:
        with limit(request.app.state.access_control).one_more(caller.tenant):
            yield caller

    return limited


Uploader = Annotated[Caller, Depends(_at_a_time(lambda it: it.open_uploads, _counted))]
Listener = Annotated[Caller, Depends(_at_a_time(lambda it: it.open_streams, _allowed(Scope.READ)))]
Inspector = Annotated[Caller, Depends(_at_a_time(lambda it: it.open_inspections, _counted))]


async def _reading(request: Request, token: _TheToken) -> AsyncIterator[str]:
    access_control: AccessControl = request.app.state.access_control
    with access_control.open_files.one_more(token.tenant):  # until it was sent, because it may be large
        yield token.tenant


async def _in_turn(request: Request, tenant: Annotated[str, Depends(_reading)]) -> AsyncIterator[None]:
    access_control: AccessControl = request.app.state.access_control
    async with access_control.file_turns.turn(tenant):
        yield


#: A dependency of routes whose handlers read or delete stored files: few of these run at a time.
IN_TURN = Depends(_in_turn, scope="function")


def demand_good(session: Session, caller: Caller) -> None:
    """A 401 if the token has been revoked or has expired since the request began."""
    if tokens.valid_token(session, caller.token_id) is None:
        raise Problem(401, _REFUSED)


Admin = Annotated[Caller, Depends(_allowed(Scope.ADMIN))]
Operator = Annotated[Caller, Depends(_allowed(Scope.OPERATOR))]
