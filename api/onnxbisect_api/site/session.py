"""Logging in and out, and the choice of another language."""

from typing import Annotated
from urllib.parse import quote, unquote, urlsplit

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from onnxbisect.language import english, named
from onnxbisect_api.access import COOKIE, AccessControl, address_of, demand_own_page
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.parameters import LANGUAGE_COOKIE, TheService
from onnxbisect_api.site.rendering import page
from onnxbisect_db.tokens import SESSION_LASTS
from onnxbisect_service.service import Service

router = APIRouter()

_HOME = "/jobs"
_YEAR = 365 * 86_400
_WRONG = english("This token is unknown, expired or revoked.")


def local(onward: str) -> str:
    """The URL if it is a path of this site, else the home page, so that a link cannot redirect to another site."""
    parts = urlsplit(onward)
    plain = onward.startswith("/") and not onward.startswith(("//", "/\\")) and onward.isprintable()
    return onward if plain and not parts.netloc and not unquote(onward).startswith("//") else _HOME


@router.get("/login")
def login_page(request: Request, onward: Annotated[str, Query(alias="next", max_length=4000)] = _HOME) -> Response:
    """The login page. `next` is the URL of this site to open after the login."""
    return page(request, "login.html.j2", None, onward=local(onward), complaint="")


@router.post("/login")
def login(
    request: Request,
    service: TheService,
    token: Annotated[str, Form(max_length=200)],
    onward: Annotated[str, Form(alias="next", max_length=4000)] = _HOME,
) -> Response:
    """Check the token and redirect to `next` with a new session; a 401 with the login page for an invalid token."""
    demand_own_page(request)
    access_control: AccessControl = request.app.state.access_control
    try:
        good, complaint = access_control.token(token.strip(), address_of(request)), _WRONG
    except Problem as problem:  # too many invalid tokens
        good, complaint = None, problem.detail
    if good is None:
        return page(request, "login.html.j2", None, status=401, onward=local(onward), complaint=complaint)
    answer = RedirectResponse(local(onward), 303)
    answer.set_cookie(
        COOKIE,
        access_control.begin_session(good),
        max_age=int(SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=_is_https(request, service),
    )
    return answer


@router.post("/logout")
def logout(request: Request, service: TheService) -> Response:
    """End the browser's session, and redirect to the login; the token stays valid."""
    demand_own_page(request)
    access_control: AccessControl = request.app.state.access_control
    access_control.end_session(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="lax", secure=_is_https(request, service))
    return answer


def to_login(request: Request) -> Response:
    """The response to a browser without a valid session: a redirect to the login, which leads back to a GET request."""
    if request.headers.get("hx-request"):  # htmx requested a part of a page: redirect the whole page
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    was = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    onward = was if request.method == "GET" else _HOME
    return RedirectResponse(f"/login?next={quote(onward, safe='')}", 303)


def _is_https(request: Request, service: Service) -> bool:
    return service.settings.is_https or request.url.scheme == "https"


@router.post("/language")
def choose_language(
    request: Request,
    service: TheService,
    language: Annotated[str, Form(max_length=20)],
    onward: Annotated[str, Form(alias="next", max_length=4000)] = _HOME,
) -> Response:
    """Keep the language for a year, and redirect to `next`. Whoever is not logged in can choose, too."""
    demand_own_page(request)
    answer = RedirectResponse(local(onward), 303)
    secure = _is_https(request, service)
    answer.set_cookie(LANGUAGE_COOKIE, named(language), max_age=_YEAR, httponly=True, samesite="lax", secure=secure)
    return answer
