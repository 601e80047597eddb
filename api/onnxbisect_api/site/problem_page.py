"""Errors as pages, at the URLs of pages."""

from http import HTTPStatus

from fastapi import Request, Response

from onnxbisect.language import marked
from onnxbisect_api.site.rendering import page
from onnxbisect_api.site.session import to_login

#: Paths at which a browser's requests come from scripts, which get a problem document.
_REST = "/v1/"
#: What statuses mean that a person meets.
_TITLES = {
    400: marked("Bad Request"),
    403: marked("Forbidden"),
    404: marked("Not Found"),
    405: marked("Method Not Allowed"),
    409: marked("Conflict"),
    413: marked("Content Too Large"),
    422: marked("Unprocessable Content"),
    429: marked("Too Many Requests"),
    500: marked("Internal Server Error"),
    503: marked("Service Unavailable"),
    507: marked("Insufficient Storage"),
}


def problem_page(request: Request, status: int, detail: str) -> Response | None:
    """The error as a page; None if the client is a program, which gets a problem document."""
    if request.url.path.startswith(_REST) or "text/html" not in request.headers.get("accept", ""):
        return None
    if status == 401:
        return to_login(request)
    return page(
        request,
        "problem.html.j2",
        None,
        status=status,
        title=_TITLES.get(status, HTTPStatus(status).phrase),
        detail=detail,
    )
