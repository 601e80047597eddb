"""Mistakes as pages, at the addresses that are pages."""

from http import HTTPStatus

from fastapi import Request, Response

from onnxbisect_api.site.rendering import page
from onnxbisect_api.site.session import to_login

#: Here a browser asks for a script of ours, which wants a problem document as any program does.
_REST = "/v1/"


def problem_page(request: Request, status: int, detail: str) -> Response | None:
    """None where no person is asking."""
    if request.url.path.startswith(_REST) or "text/html" not in request.headers.get("accept", ""):
        return None
    if status == 401:
        return to_login(request)
    return page(request, "problem.html.j2", None, status=status, title=HTTPStatus(status).phrase, detail=detail)
