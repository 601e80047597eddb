"""Checks that a request comes from this site's pages, so that other sites cannot use a browser's cookie."""

from urllib.parse import urlsplit

from fastapi import Request

from onnxbisect_api.problems import Problem

_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


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
        raise Problem(403, "This request does not come from a page of this service.")
