"""The choice of another language."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from onnxbisect.language import named
from onnxbisect_api.origin import demand_own_page, local
from onnxbisect_api.reader import LANGUAGE_COOKIE
from onnxbisect_api.service import TheService

router = APIRouter()

_YEAR = 365 * 86_400


@router.post("/language")
def choose(
    request: Request,
    service: TheService,
    language: Annotated[str, Form(max_length=20)],
    onward: Annotated[str, Form(alias="next", max_length=4000)] = "/jobs",
) -> Response:
    """Keep the language for a year, and redirect to `next`. Whoever is not logged in can choose, too."""
    demand_own_page(request)
    answer = RedirectResponse(local(onward), 303)
    secure = service.settings.is_https or request.url.scheme == "https"
    answer.set_cookie(LANGUAGE_COOKIE, named(language), max_age=_YEAR, httponly=True, samesite="lax", secure=secure)
    return answer
