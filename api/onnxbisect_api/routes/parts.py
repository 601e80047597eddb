"""A table of several models, such as the parts of one network, on the same targets."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from onnxbisect.language import english
from onnxbisect.report import parts
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.errors.problems import Problem, missing
from onnxbisect_api.headers import tag_of, unchanged
from onnxbisect_api.parameters import TheService
from onnxbisect_api.routes.reports import ReportForm, preferred_form
from onnxbisect_api.views.listing import TheLabels
from onnxbisect_api.views.overviews import labelled, named, newest, table_of
from onnxbisect_db import jobs
from onnxbisect_db.states import JobState

router = APIRouter(tags=["reports"])

_MOST_JOBS = 200
_TABLE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The table",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/markdown": {"schema": {"type": "string"}},
            "text/html": {"schema": {"type": "string"}},
        },
    },
    304: {"description": "The client has it"},
}


@router.get(
    "/parts",
    summary="The table of several models by targets",
    response_class=Response,
    responses=_TABLE,
    dependencies=[IN_TURN],
)
def get_parts_table(
    request: Request,
    service: TheService,
    caller: Reader,
    labels: TheLabels,
    form: Annotated[
        ReportForm | None, Query(alias="format", description="json, md or html; by default negotiated by `Accept`")
    ] = None,
) -> Response:
    """The table shows the newest job with these labels on each model: the result on each target, and the causes that
    several models share.

    409 until all these jobs have ended. `POST /v1/jobs` with `models` gives its jobs a common label.
    """
    if not labels:
        raise Problem(422, "Say which jobs with ?label=name:value.")
    form = form or preferred_form(request.headers.get("accept", ""))
    if form not in (ReportForm.JSON, ReportForm.MD, ReportForm.HTML):
        raise Problem(422, f"{form} is for one target of one job: the table is there as json, md and html.")
    with service.database.session() as session:
        rows = newest(jobs.list_page(session, caller.tenant, jobs.JobFilter(labels=labels), limit=_MOST_JOBS).rows)
    if not rows:
        raise missing(english("job with these labels"))
    going = sum(not JobState(job.state).ended for job in rows)
    if going:
        raise Problem(409, f"There is no table yet: {going} of {len(rows)} jobs have not ended.")
    found = [search.report or search.problem for job in rows for search in job.searches]
    placed = {"Content-Disposition": f'inline; filename="parts.{form}"'}
    headers = {"ETag": tag_of(*found, form), "Vary": "Accept", **form.headers, **placed}
    if (same := unchanged(request, headers)) is not None:
        return same
    made = table_of(rows, service)
    where = {
        label: (job.id, searches) for (label, job), searches in zip(named(rows).items(), labelled(rows), strict=True)
    }

    def link(model: str, target: str, _: str) -> str:
        job_id, searches = where[model]
        return f"jobs/{job_id}/report?target={searches[target].ordinal + 1}&format={form}"

    text = {
        ReportForm.JSON: lambda: json.dumps(made.to_json(), indent=1) + "\n",
        ReportForm.MD: lambda: parts.markdown(made, link),
        ReportForm.HTML: lambda: parts.html(made, link),
    }[form]()
    return Response(text.encode("utf-8", "backslashreplace"), media_type=form.media_type, headers=headers)
