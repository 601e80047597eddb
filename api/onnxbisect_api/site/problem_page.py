"""Errors as pages, at the URLs of pages."""

from http import HTTPStatus

from fastapi import Request, Response

from onnxbisect_api.site.rendering import page
from onnxbisect_api.site.session import to_login

#: Paths at which a browser's requests come from scripts, which get a problem document.
_REST = "/v1/"


def problem_page(request: Request, status: int, detail: str) -> Response | None:
    """The error as a page; None if the client is a program, which gets a problem document."""
    if request.url.path.startswith(_REST) or "text/html" not in request.headers.get("accept", ""):
        return None
    if status == 401:
        return to_login(request)
    return page(request, "problem.html.j2", None, status=status, title=HTTPStatus(status).phrase, detail=detail)
