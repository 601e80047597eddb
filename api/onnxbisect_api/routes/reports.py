"""The reports of a job in every form, the culprits' files, repairs, and nodes that must stay precise."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from onnxbisect.language import within
from onnxbisect.report.files import FILE_NAMES, FORMS
from onnxbisect.report.overview import Overview, html, markdown
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.headers import tag_of, unchanged
from onnxbisect_api.parameters import RowId, TheService, language_of, weighed
from onnxbisect_api.views.found import (
    CulpritFileName,
    PrecisionFileName,
    RepairFileName,
    answered,
    culprit_sha256,
    document_of,
    job_of,
    precision_sha256,
    repair_form,
    repair_sha256,
    report_of,
    search_of,
    stored,
)
from onnxbisect_api.views.overviews import labelled, overview_of
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job
from onnxbisect_service.service import Service

router = APIRouter(tags=["reports"])

TargetNumber = Annotated[int | None, Query(ge=1, le=32, description="which of several targets, from 1")]
CulpritNumber = Annotated[int, Path(ge=1, le=99_999, description="as the report counts culprits, from 1")]


class ReportForm(StrEnum):
    """The forms of a report. Each is a file that `onnx-bisect run --out` writes."""

    JSON = "json"
    MD = "md"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"
    GITLAB = "gitlab"

    @property
    def file_name(self) -> str:
        """The name of the file that `onnx-bisect run --out` writes."""
        return FILE_NAMES[self]

    @property
    def media_type(self) -> str:
        """The media type without parameters such as the charset."""
        return _MEDIA_TYPES[self]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that make a report safe to show or download, because reports contain untrusted names."""
        shown = self in (ReportForm.JSON, ReportForm.MD, ReportForm.HTML)
        placed = "inline" if shown else "attachment"
        return {"Content-Disposition": f'{placed}; filename="{self.file_name}"', "Content-Security-Policy": _POLICY}


_MEDIA_TYPES = {
    ReportForm.JSON: "application/json",
    ReportForm.MD: "text/markdown",
    ReportForm.HTML: "text/html",
    ReportForm.JUNIT: "application/xml",
    ReportForm.SARIF: "application/sarif+json",
    ReportForm.GITLAB: "application/json",
}
#: Reports have styles and no scripts, which this policy would block.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox"
_ACCEPTED = {
    "*/*": ReportForm.JSON,
    "application/*": ReportForm.JSON,
    "application/json": ReportForm.JSON,
    "text/*": ReportForm.MD,
    "text/markdown": ReportForm.MD,
    "text/html": ReportForm.HTML,
    "application/xml": ReportForm.JUNIT,
    "text/xml": ReportForm.JUNIT,
    "application/sarif+json": ReportForm.SARIF,
}


def preferred_form(header: str) -> ReportForm:
    """The form that an `Accept` header prefers, JSON by default."""
    for media_type, weight in weighed(header) if header.strip() else [("*/*", 1.0)]:
        if weight > 0 and media_type in _ACCEPTED:
            return _ACCEPTED[media_type]
    raise Problem(406, f"A report is there as {', '.join(ReportForm)}: ask for one of them with ?format=.")


#: Markdown and HTML are in the reader's language.
_VARY = "Accept, Accept-Language, Cookie"
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_JSON: dict[str, Any] = {"schema": {"type": ["object", "array"]}}
_REPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report",
        "content": {form.media_type: _JSON if form.media_type.endswith("json") else _TEXT for form in ReportForm},
    },
    304: {"description": "The client has it"},
}
FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {"application/octet-stream": _TEXT, "text/plain": _TEXT}},
    304: {"description": "The client has it"},
}


@router.get(
    "/jobs/{job_id}/report",
    summary="The report, in any form",
    response_class=Response,
    responses=_REPORT,
    dependencies=[IN_TURN],
)
def get_report(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
    form: Annotated[ReportForm | None, Query(alias="format", description="by default negotiated by `Accept`")] = None,
) -> Response:
    """The report of one target. For a job with several targets, without `target`: the overview of all of them as json,
    md or html, once the job has ended. md and html are in the language of `Accept-Language`: English or Chinese.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
    form = form or preferred_form(request.headers.get("accept", ""))
    if target is None and len(job.searches) > 1:
        return _overview(job, form, request, service)
    sha256 = report_of(search_of(job, target))
    headers = {"ETag": tag_of(sha256, form, language_of(request)), "Vary": _VARY, **form.headers}
    if (same := unchanged(request, headers)) is not None:
        return same
    if form is ReportForm.JSON:
        return stored(service, sha256, form.media_type, headers)
    with within(language_of(request)):
        return _written(FORMS[form.file_name](document_of(service, sha256)), form, headers)


@router.get(
    "/jobs/{job_id}/culprits/{number}/{name}",
    summary="A file of a culprit: model, data or compiler log",
    response_class=Response,
    responses=FILE,
    dependencies=[IN_TURN],
)
def get_culprit_file(
    job_id: RowId,
    number: CulpritNumber,
    name: CulpritFileName,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
) -> Response:
    """The file `model.data` exists if the culprit's `model.onnx` has external data."""
    with service.database.session() as session:
        search = search_of(job_of(session, job_id, caller), target)
    return answered(request, service, culprit_sha256(search, number, name), name)


_OVERVIEWS: Mapping[ReportForm, Callable[[Overview, Callable[[str, str], str]], str]] = {
    ReportForm.JSON: lambda found, link: json.dumps(found, indent=1) + "\n",
    ReportForm.MD: markdown,
    ReportForm.HTML: html,
}


def _overview(job: Job, form: ReportForm, request: Request, service: Service) -> Response:
    if form not in _OVERVIEWS:
        raise Problem(422, f"{form} is for one target: say which with ?target=NUMBER, from 1.")
    if not JobState(job.state).ended:
        raise Problem(409, f"There is no overview yet: the job is {job.state}. A target that is done has its report.")
    found = [search.report or search.problem for search in job.searches]
    headers = {"ETag": tag_of(*found, form, language_of(request)), "Vary": _VARY, **form.headers}
    if (same := unchanged(request, headers)) is not None:
        return same
    made = overview_of(job, service)
    if made is None:
        raise Problem(409, f"There is no report of any target: {job.problem}.")
    numbers = {label: search.ordinal + 1 for label, search in labelled([job])[0].items()}
    with within(language_of(request)):
        written = _OVERVIEWS[form](made, lambda label, _: f"report?target={numbers[label]}&format={form}")
    return _written(written, form, headers)


def _written(text: str, form: ReportForm, headers: Mapping[str, str]) -> Response:
    content = text.encode("utf-8", "backslashreplace")
    return Response(content, media_type=form.media_type, headers=dict(headers))


#: Repairs are a section of their own in the description.
repairs_router = APIRouter(tags=["repairs"])

_REPAIR: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The repair",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/markdown": _TEXT},
    },
    304: {"description": "The client has it"},
}
_REPAIR_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {"application/octet-stream": _TEXT, "application/json": {"schema": {"type": "object"}}},
    },
    304: {"description": "The client has it"},
}


@repairs_router.get(
    "/jobs/{job_id}/repair",
    summary="The document of a repair",
    response_class=Response,
    responses=_REPAIR,
    dependencies=[IN_TURN],
)
def get_repair(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
    form: Annotated[Literal["json", "md"], Query(alias="format")] = "json",
) -> Response:
    """The same document as the file `repair.json` or `repair.md` of `onnx-bisect fix`."""
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        sha256 = repair_form(job, search_of(job, target), form)
    policy = ReportForm(form).headers["Content-Security-Policy"]
    placed = f'inline; filename="repair.{form}"'
    headers = {"ETag": f'"{sha256}"', "Content-Disposition": placed, "Content-Security-Policy": policy}
    return unchanged(request, headers) or stored(service, sha256, ReportForm(form).media_type, headers)


@repairs_router.get(
    "/jobs/{job_id}/repair/{name}",
    summary="The repaired model, or the report on what is left",
    response_class=Response,
    responses=_REPAIR_FILE,
    dependencies=[IN_TURN],
)
def get_repair_file(
    job_id: RowId,
    name: RepairFileName,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
) -> Response:
    """A repaired model uses the external data that was uploaded with the original. A report exists if culprits are
    left.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        sha256 = repair_sha256(job, search_of(job, target), name)
    saved_as = "repaired.onnx" if name == "model.onnx" else name
    headers = {"ETag": f'"{sha256}"', "Content-Disposition": f'attachment; filename="{saved_as}"'}
    media_type = "application/octet-stream" if name == "model.onnx" else "application/json"
    return unchanged(request, headers) or stored(service, sha256, media_type, headers)


precision_router = APIRouter(tags=["precision"])
#: Media types of what a browser shows; the rest is downloaded.
_SHOWN = {"json": "application/json", "md": "text/markdown", "svg": "image/svg+xml", "txt": "text/plain"}
_PRECISION_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {
            **{media_type: {"schema": {"type": "string"}} for media_type in _SHOWN.values()},
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string"}},
        },
    },
    304: {"description": "The client has it"},
}


@precision_router.get(
    "/jobs/{job_id}/precision/{name}",
    summary="A file on the nodes that must stay precise",
    response_class=Response,
    responses=_PRECISION_FILE,
    dependencies=[IN_TURN],
)
def get_precision_file(
    job_id: RowId,
    name: PrecisionFileName,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
) -> Response:
    """`precision.json`, or another file that `onnx-bisect precision` writes: the pictures, the models, and the
    configurations of vendors' compilers.
    """
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        sha256 = precision_sha256(job, search_of(job, target), name)
    media_type = _SHOWN.get(name.rpartition(".")[2], "application/octet-stream")
    placed = "attachment" if media_type == "application/octet-stream" else "inline"
    headers = {
        "ETag": f'"{sha256}"',
        "Content-Disposition": f'{placed}; filename="{name}"',
        "Content-Security-Policy": _POLICY,
    }
    return unchanged(request, headers) or stored(service, sha256, media_type, headers)
