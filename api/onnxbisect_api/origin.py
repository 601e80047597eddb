"""Checks that a request comes from this site's pages, so that other sites cannot use a browser's cookie."""

from urllib.parse import urlsplit

from fastapi import Request

from onnxbisect_api.problems import Problem

_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


def demand_own_page(request: Request) -> None:
    """A 403 for a changing request that does not show that it comes from this site.

    Pages cannot forge `Sec-Fetch-Site`; browsers omit it over plain HTTP, and then send `Origin`.
    """
    if request.method in _HARMLESS:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin", "")
    own = site == "same-origin" if site is not None else urlsplit(origin).netloc == request.headers.get("host")
    if not own:
        raise Problem(403, "This request does not come from a page of this service.")
