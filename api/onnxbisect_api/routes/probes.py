"""The probes of a job, and compilers' logs."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import PlainTextResponse

from onnxbisect.fingerprint import plain
from onnxbisect.json_form import from_json
from onnxbisect.language import english
from onnxbisect.unitset import size, spell
from onnxbisect.verdict import Kind, Status, Verdict
from onnxbisect_api.access import Reader
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import RowId, RowView, TheService
from onnxbisect_api.routes.reports import TargetNumber
from onnxbisect_api.views.found import job_of, search_of
from onnxbisect_api.views.listing import PagedRows
from onnxbisect_db import probe_queries
from onnxbisect_db.states import ProbeState
from onnxbisect_db.tables import Probe, Search

router = APIRouter(tags=["probes"])


class ProbeView(RowView):
    """One probe, with its answer once the state is done.

    Fields that a report's probes have, too, have the same meaning.
    """

    id: str
    target: int = Field(description="the number of the target that it was asked of")
    state: ProbeState
    key: str | None = Field(description="its canonical structure, once a worker has cut it")
    size: int = Field(description="how many units were compiled")
    units: str = Field(description="which of the report's units, as ranges")
    why: str
    attempt: int
    speculative: bool = Field(description="asked before it was known to be needed")
    round: int
    verdict: Status | None
    kind: Kind | None
    message: str
    fingerprint: str
    seconds: float | None = Field(description="of the compiler")
    cached: bool = Field(description="answered without a compiler")
    worker: str = Field(description="the worker of its latest claim")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@router.get("/jobs/{job_id}/probes", summary="List the probes of a job")
def list_probes(
    job_id: RowId,
    service: TheService,
    caller: Reader,
    paged: PagedRows,
    target: TargetNumber = None,
    state: ProbeState | None = None,
) -> list[ProbeView]:
    """The list is paginated, oldest first: the `Link` header has the URL of the next page."""
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        search_id = None if target is None else search_of(job, target).id
        page = probe_queries.list_page(
            session, job, search_id=search_id, state=state, after=paged.after, limit=paged.limit
        )
    paged.next_is(page.after)
    numbers = {search.id: search.ordinal + 1 for search in job.searches}
    views = []
    for probe in page.rows:
        units = int(probe.units, 16)
        verdict = None if probe.verdict is None else from_json(probe.verdict, Verdict)
        views.append(
            ProbeView.of_row(
                probe,
                target=numbers[probe.search_id],
                size=size(units),
                units=spell(units),
                verdict=verdict.status if verdict else None,
                kind=verdict.kind if verdict else None,
                message=verdict.message if verdict else "",
                fingerprint=verdict.fingerprint if verdict else "",
                seconds=round(verdict.seconds, 3) if verdict else None,
            )
        )
    return views


@router.get(
    "/jobs/{job_id}/probes/{probe_id}/log",
    summary="A probe's compiler log",
    response_class=PlainTextResponse,
)
def get_probe_log(job_id: RowId, probe_id: RowId, service: TheService, caller: Reader) -> str:
    """The compiler's log as text without terminal escape sequences; empty until the probe is done."""
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        probe = session.get(Probe, probe_id)
        text = None
        search = None if probe is None else session.get(Search, probe.search_id)
        if search is not None and search.job_id == job.id:
            text = probe_queries.log(session, probe_id, caller.tenant)
    if text is None:
        raise missing(english("probe of this job"))
    return plain(text)
