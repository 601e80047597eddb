"""Where a request comes from: this site's pages, or others that must not use its cookie; the client's address."""

from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import unquote, urlsplit

from fastapi import Request

from onnxbisect.language import english
from onnxbisect_api.problems import Problem

_HOME = "/jobs"
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
        raise Problem(403, english("This request does not come from a page of this service."))


def local(onward: str) -> str:
    """The URL if it is a path of this site, else the home page, so that a link cannot redirect to another site."""
    parts = urlsplit(onward)
    plain = onward.startswith("/") and not onward.startswith(("//", "/\\")) and onward.isprintable()
    return onward if plain and not parts.netloc and not unquote(onward).startswith("//") else _HOME


def counted_address(address: str) -> str:
    """The address itself, or for IPv6 its network, because providers give each client a whole network."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))
    return str(ip)
