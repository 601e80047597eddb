"""Badges: the result of the newest job with certain labels.

READMEs show them, so the browser that fetches one has no token. The URL is signed instead: it is valid for these
labels, while the token that requested it is valid, and does not reveal that token.
"""

from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Annotated, Any, Self
from urllib.parse import urljoin

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from onnxbisect.language import english
from onnxbisect.report.text import clip, plural
from onnxbisect.verdict import Status
from onnxbisect_api.access import Reader
from onnxbisect_api.errors.problems import Problem, missing
from onnxbisect_api.headers import tag_of, unchanged
from onnxbisect_api.parameters import UUID_PATTERN, TheAddresses, TheService
from onnxbisect_api.views.listing import TheLabels
from onnxbisect_db import jobs, tokens
from onnxbisect_db.states import JobState, Scope
from onnxbisect_db.tables import Job, Token

_MOST_CHARACTERS = 40
_NARROW = frozenset("fijlrt1.,:;'|!()[] ")
_WIDE = frozenset("mwMW@%")
_PADDING = 10


class Colour(StrEnum):
    """Background colours of the right half, on which white text is readable."""

    GOOD = "#2a7f3f"
    BAD = "#b3372b"
    UNSURE = "#8a6100"
    BUSY = "#2f6690"
    NONE = "#666666"


@dataclass(frozen=True, kw_only=True)
class Badge:
    """The contents of a badge."""

    title: str
    message: str
    colour: Colour

    @classmethod
    def of(cls, job: Job | None) -> Self:
        """About the newest job, if there is one."""
        if job is None:
            return cls(title=_TITLE, message="no job", colour=Colour.NONE)
        count = sum(len(search.found) for search in job.searches)
        match job.state, job.verdict:
            case JobState.DONE, Status.PASS:
                return cls(title=_TITLE, message="compiles", colour=Colour.GOOD)
            case JobState.DONE, Status.FAIL:
                return cls(title=_TITLE, message=plural(count, "culprit") if count else "fails", colour=Colour.BAD)
            case JobState.DONE, _:
                return cls(title=_TITLE, message="unresolved", colour=Colour.UNSURE)
            case ((JobState.QUEUED | JobState.RUNNING), _):
                return cls(title=_TITLE, message=job.state, colour=Colour.BUSY)
            case _:
                return cls(title=_TITLE, message=job.state, colour=Colour.NONE)

    def svg(self) -> str:
        """The SVG, without scripts, fonts or other external resources. Both texts may be hostile."""
        title, message = (clip(text, _MOST_CHARACTERS) for text in (self.title, self.message))
        left, right = _width(title), _width(message)
        label = escape(f"{title}: {message}")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
            f'aria-label="{label}"><title>{label}</title>'
            f'<clipPath id="round"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
            f'<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#444"/>'
            f'<rect x="{left}" width="{right}" height="20" fill="{self.colour}"/></g>'
            f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
            f"{_text(title, left / 2, left)}{_text(message, left + right / 2, right)}</g></svg>\n"
        )


def _text(text: str, middle: float, width: int) -> str:
    return f'<text x="{middle:g}" y="14" textLength="{width - _PADDING}">{escape(text)}</text>'


def _width(text: str) -> int:
    """An approximate width; `textLength` makes it exact in any font."""
    wide = sum(4 if char in _NARROW else 10 if char in _WIDE else 7 if char.isascii() else 11 for char in text)
    return max(wide, 1) + _PADDING


router = APIRouter(tags=["badges"])

_TITLE = "onnx-bisect"
#: Seconds for which badges may be cached.
_SECONDS = 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
_SVG: dict[int | str, dict[str, Any]] = {
    200: {"description": "The badge", "content": {"image/svg+xml": {"schema": {"type": "string"}}}},
    304: {"description": "The client has it"},
}


class BadgeView(BaseModel):
    """The URL of a badge."""

    url: str
    markdown: str = Field(description="for a README")


@router.get("/badge", summary="The URL of a badge")
def get_badge_address(
    request: Request, service: TheService, caller: Reader, labels: TheLabels, addresses: TheAddresses
) -> BadgeView:
    """The badge shows the newest job with all of these labels. Its URL needs no token, and is valid as long as the
    token of this request: use a read-only token that does not expire.
    """
    if not labels:
        raise Problem(422, "Name the labels of the badge, as in label=repo:net.")
    with service.database.session() as session:
        token = session.get_one(Token, caller.token_id)
    query = [("label", f"{name}:{value}") for name, value in sorted(labels.items())]
    query += [("token", token.id), ("seal", tokens.seal(token, _sealed(labels)))]
    # a README needs an absolute URL; without a public address, the request's is the best guess
    url = urljoin(str(request.base_url), addresses.badge(query))
    return BadgeView(url=url, markdown=f"![{_TITLE}]({url})")


@router.get("/badge.svg", summary="A badge", response_class=Response, responses=_SVG)
def get_badge(
    request: Request,
    service: TheService,
    labels: TheLabels,
    token: Annotated[str, Query(pattern=UUID_PATTERN)],
    seal: Annotated[str, Query(pattern="^[0-9a-f]{64}$")],
) -> Response:
    """`GET /v1/badge` returns this URL with its query. It needs no token."""
    with service.database.session() as session:
        owner = tokens.token_of_seal(session, token, _sealed(labels), seal)
        if owner is None or not tokens.allows(owner, Scope.READ):
            raise missing(english("badge"))
        found = jobs.list_page(session, owner.tenant, jobs.JobFilter(labels=labels), limit=1).rows
    svg = Badge.of(found[0] if found else None).svg()
    headers = {
        "Cache-Control": f"public, max-age={_SECONDS}",
        "Content-Security-Policy": _POLICY,
        "ETag": tag_of(svg),
    }
    return unchanged(request, headers) or Response(svg, media_type="image/svg+xml", headers=headers)


def _sealed(labels: dict[str, str]) -> str:
    """The text to seal. It is unique for the labels, because their names contain no colons or line ends."""
    return "\n".join(["badge", *(f"{name}:{value}" for name, value in sorted(labels.items()))])
