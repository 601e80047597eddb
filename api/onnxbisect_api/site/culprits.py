"""The pages of culprits over all jobs: their cost, what versions of a compiler fixed and broke; and one in Netron."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode, urljoin, urlsplit

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BeforeValidator, StringConstraints

from onnxbisect.language import english
from onnxbisect.report.contents import culprit_dir_name
from onnxbisect_api.access import IN_TURN, Reader, Submitter
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import ONE_LINE, BackendName, RowId, TheAddresses, TheService
from onnxbisect_api.routes import culprits as rest
from onnxbisect_api.routes.culprits import CulpritChange, CulpritView, OpenOrKnown, culprit_views
from onnxbisect_api.routes.reports import CulpritNumber
from onnxbisect_api.routes.shared import NETRON, issue_ticket, shared_file
from onnxbisect_api.site.rendering import page
from onnxbisect_api.views.found import culprit_sha256, document_of, job_of, report_of, search_of
from onnxbisect_db import culprit_overview
from onnxbisect_db.culprits import CulpritFilter
from onnxbisect_db.states import CulpritState

router = APIRouter()

_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, kw_only=True)
class _OpRow:
    """One op, or ops that fail together, with the culprits that are its variants: the costliest first."""

    variants: Sequence[CulpritView]

    @property
    def found(self) -> int:
        return sum(it.found for it in self.variants)

    @property
    def seconds(self) -> float:
        return sum(it.seconds for it in self.variants)

    @property
    def last_seen(self) -> datetime:
        return max(it.last_seen for it in self.variants)


#: Most culprits, versions and weeks that are shown.
_COSTLIEST, _VERSIONS, _WEEKS = 50, 20, 12

# Browsers also send empty fields of a form; these count as missing.
_Said = BeforeValidator(lambda value: value or None)
_Text = Annotated[Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=200)] | None, _Said]


@router.get("/culprits")
def culprit_list_page(
    request: Request,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    state: Annotated[CulpritState | None, _Said] = None,
    text: _Text = None,
    target: Annotated[BackendName | None, _Said] = None,
) -> Response:
    """The page of all culprits, which the filters select. Its tables of versions and weeks are never filtered."""
    wanted = CulpritFilter(state=state, text=text, backend=target)
    with service.database.session() as session:
        costliest = culprit_overview.costliest(session, caller.tenant, wanted, limit=_COSTLIEST + 1)
        views = culprit_views(session, costliest[:_COSTLIEST], addresses)
        versions = culprit_overview.changes(session, caller.tenant)[:_VERSIONS]
        weeks = culprit_overview.weeks(session, caller.tenant, count=_WEEKS)
        backends = culprit_overview.backends(session, caller.tenant)
    while len(weeks) > 1 and not (weeks[-1].new or weeks[-1].fixed or weeks[-1].seconds):
        weeks.pop()  # omit weeks before the first culprit
    by_ops: dict[tuple[str, ...], list[CulpritView]] = {}
    for view in views:
        by_ops.setdefault(tuple(view.ops), []).append(view)
    return page(
        request,
        "culprits.html.j2",
        caller,
        rows=sorted((_OpRow(variants=variants) for variants in by_ops.values()), key=lambda row: -row.seconds),
        shown=len(views),
        more=len(costliest) > _COSTLIEST,
        versions=versions,
        weeks=weeks,
        backends=backends,
        states=list(CulpritState),
        state=state,
        text=text or "",
        target=target,
        narrowed=bool(state or text or target),
    )


@router.get("/culprits/{culprit_id}")
def culprit_page(
    request: Request, culprit_id: RowId, service: TheService, caller: Reader, addresses: TheAddresses
) -> Response:
    """The page of one culprit, with the places where it occurs."""
    found = rest.get_known_culprit(culprit_id, service, caller, addresses)
    return page(request, "culprit.html.j2", caller, culprit=found)


@router.post("/culprits/{culprit_id}")
def change_culprit(
    culprit_id: RowId,
    service: TheService,
    caller: Submitter,
    addresses: TheAddresses,
    state: Annotated[OpenOrKnown, Form()],
) -> Response:
    """Mark the culprit as known or open, and redirect to its page."""
    rest.change_culprit(culprit_id, CulpritChange(state=state), service, caller, addresses)
    return RedirectResponse(f"/culprits/{culprit_id}", 303)


@router.get("/jobs/{job_id}/culprits/{number}/netron", dependencies=[IN_TURN])
def netron(
    request: Request,
    job_id: RowId,
    number: CulpritNumber,
    service: TheService,
    caller: Reader,
    addresses: TheAddresses,
    target: Annotated[int, Query(ge=1, le=32)] = 1,
) -> Response:
    """A page before Netron's site, because the URL for Netron works without a token. Each visit creates a new URL."""
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
        culprit_sha256(search, number, "model.onnx")
        ticket = issue_ticket(session, caller, shared_file(job_id, target, number))
    culprits = document_of(service, report_of(search))["culprits"]
    if number > len(culprits):
        raise missing(english("culprit"))
    # Netron needs an absolute URL; without a public address in the settings, the request's is used
    root = urljoin(str(request.base_url), addresses.job(job_id))
    shared = f"{root}/culprits/{number}/shared/model.onnx?{urlencode({'target': target, 'ticket': ticket})}"
    parts = urlsplit(shared)
    name = f"{culprit_dir_name(number, culprits[number - 1]['ops'])}.onnx"
    loads = parts.scheme == "https" or parts.hostname in _HERE
    return page(
        request,
        "netron.html.j2",
        caller,
        file_name=name,
        number=number,
        job_page=f"/jobs/{job_id}?target={target}#c{number}",
        download=f"/v1/jobs/{job_id}/culprits/{number}/model.onnx?target={target}",
        onward=f"{NETRON}/?{urlencode({'url': shared, 'identifier': name})}" if loads else "",
        local=parts.hostname in _HERE,
        host=parts.netloc,
    )
