"""The routers of all pages, and the page of an error."""

from http import HTTPStatus

from fastapi import Request, Response

from onnxbisect.language import marked
from onnxbisect_api.site import (
    backends,
    compare,
    culprits,
    inspection,
    job,
    jobs,
    new,
    probes,
    rendering,
    session,
    tokens,
    webhooks,
)
from onnxbisect_api.site.rendering import page
from onnxbisect_api.site.session import to_login

ROUTERS = tuple(
    module.router
    for module in (
        rendering,
        session,
        jobs,
        new,
        job,
        backends,
        probes,
        compare,
        culprits,
        inspection,
        webhooks,
        tokens,
    )
)


#: Paths at which a browser's requests come from scripts, which get a problem document.
_REST = "/v1/"
#: What versions of Python call the statuses that a person meets, for the catalogue.
PHRASES = (
    marked("Bad Request"),
    marked("Forbidden"),
    marked("Not Found"),
    marked("Method Not Allowed"),
    marked("Conflict"),
    marked("Content Too Large"),
    marked("Request Entity Too Large"),
    marked("Unprocessable Content"),
    marked("Unprocessable Entity"),
    marked("Too Many Requests"),
    marked("Internal Server Error"),
    marked("Service Unavailable"),
    marked("Insufficient Storage"),
)


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
        title=HTTPStatus(status).phrase,
        detail=detail,
    )
