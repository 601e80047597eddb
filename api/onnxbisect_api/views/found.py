"""Look up a job of the caller, one of its targets, and their stored documents and files, or raise a problem."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal, cast

from fastapi import Path, Request, Response
from fastapi.responses import FileResponse
from sqlalchemy.orm import Session
from starlette.responses import MalformedRangeHeader, RangeNotSatisfiable

from onnxbisect.language import english
from onnxbisect.report.contents import Report
from onnxbisect_api.access import Caller
from onnxbisect_api.errors.problems import Problem, missing
from onnxbisect_api.headers import unchanged
from onnxbisect_db import jobs
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service


def job_of(session: Session, job_id: str, caller: Caller) -> Job:
    """The job, with its searches; a 404 if the caller's tenant has no such job."""
    job = jobs.get(session, job_id, caller.tenant)
    if job is None:
        raise missing(english("job"))
    return job


def search_of(job: Job, target: int | None) -> Search:
    """The job's target with this number, by default its only target.

    A 422 if the job has several targets and no number is given, a 404 if it has no target with the number.
    """
    if target is None:
        if len(job.searches) > 1:
            raise Problem(
                422,
                english("The job has {count} targets: say which with ?target=NUMBER, from 1.", count=len(job.searches)),
            )
        return job.searches[0]
    if target > len(job.searches):
        raise missing(english("target of this job"))
    return job.searches[target - 1]


def report_of(search: Search) -> str:
    """SHA-256 of a target's report; a 409 if there is none."""
    if search.report is not None:
        return search.report
    if search.state == JobState.FAILED:
        raise Problem(409, english("There is no report, since the target failed: {problem}", problem=search.problem))
    if search.state == JobState.CANCELLED:
        raise Problem(409, english("There is no report, since the job was cancelled: retry it."))
    raise Problem(
        409,
        f"There is no report yet: the target is {search.state}. Wait with GET /v1/jobs/{{id}}?wait=60.",
    )


def document_of(service: Service, sha256: str) -> Report:
    """A stored report, by its SHA-256; a 404 if its job was deleted."""
    return cast(Report, stored_json(service, sha256))


def stored_json(service: Service, sha256: str) -> object:
    """The contents of a job's stored JSON file, by its SHA-256; a 404 if the job was deleted."""
    try:
        with service.files.open(sha256) as file:
            document: object = json.load(file)
    except FileNotFoundError:  # the job was deleted during this request
        raise missing(english("job")) from None
    return document


CulpritFileName = Literal["model.onnx", "model.data", "compiler.log"]


class _StoredFile(FileResponse):
    """A file, or a part of it. A `Range` that cannot be read is ignored, as RFC 9110 says."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []
        except RangeNotSatisfiable:
            whole = f"bytes */{file_size}"
            raise Problem(416, f"The file has {file_size:,} bytes, and none there.", {"Content-Range": whole}) from None


def culprit_sha256(search: Search, number: int, name: CulpritFileName) -> str:
    """SHA-256 of a file of the culprit with this number, counted from 1; a problem if there is none."""
    report_of(search)
    place = re.compile(rf"culprits/{number:02d}-[^/]*/{re.escape(name)}")
    sha256: str | None = next((sha256 for path, sha256 in search.files.items() if place.fullmatch(path)), None)
    if sha256 is None:
        raise missing(english("file of this culprit"))
    return sha256


def culprit_number(folder: str) -> int:
    """The number of the culprit in the folder `02-Exp`: 2."""
    return int(folder.partition("-")[0])


def answered(request: Request, service: Service, sha256: str, name: CulpritFileName) -> Response:
    """A response with a culprit's stored file, or a 304 if the client has it."""
    is_log = name.endswith(".log")
    placed = "inline" if is_log else "attachment"
    headers = {"ETag": f'"{sha256}"', "Content-Disposition": f'{placed}; filename="{name}"'}
    media_type = "text/plain" if is_log else "application/octet-stream"
    return unchanged(request, headers) or stored(service, sha256, media_type, headers)


def stored(service: Service, sha256: str, media_type: str, headers: Mapping[str, str]) -> FileResponse:
    """A response with a stored file."""
    try:
        path = service.files.path(sha256)
    except FileNotFoundError:  # the job was deleted during this request
        raise missing(english("job")) from None
    return _StoredFile(path, media_type=media_type, headers=dict(headers))


#: Names of a repair's files in URLs.
RepairFileName = Literal["model.onnx", "report.json"]

REPAIR_FOLDER = "repair/"
_DOCUMENT, _MODEL = f"{REPAIR_FOLDER}repair.json", f"{REPAIR_FOLDER}repaired.onnx"


def repair_form(job: Job, search: Search, form: Literal["json", "md"]) -> str:
    """SHA-256 of the repair's document as JSON or Markdown; a 409 if there is none."""
    sha256: str | None = search.files.get(f"{REPAIR_FOLDER}repair.{form}")
    if sha256 is not None:
        return sha256
    if job.request.get("repair") is None:
        raise Problem(409, "No repair was asked for: make a job with the field 'repair'.")
    if search.repair is not None:
        raise Problem(409, f"There is no repair, since it failed: {search.repair['problem']}")
    if search.state == JobState.FAILED:
        raise Problem(409, f"There is no repair, since the target failed: {search.problem}")
    if search.state == JobState.CANCELLED:
        raise Problem(409, "There is no repair, since the job was cancelled: retry it.")
    raise Problem(
        409,
        f"There is no repair yet: the target is {search.state}. Wait with GET /v1/jobs/{{id}}?wait=60.",
    )


def repair_sha256(job: Job, search: Search, name: RepairFileName) -> str:
    """SHA-256 of the repaired model, or of the report on what is left."""
    repair_form(job, search, "json")
    sha256: str | None = search.files.get(_MODEL if name == "model.onnx" else f"{REPAIR_FOLDER}{name}")
    if sha256 is None:
        raise missing(english("file of this repair"))
    return sha256


#: Names of the files of a search for precise nodes, all of its folder.
PrecisionFileName = Annotated[str, Path(pattern=r"^[a-z_0-9.]{1,60}$", description="as `files` of the target has it")]

PRECISION_FOLDER = "precision/"


def precision_sha256(job: Job, search: Search, name: str) -> str:
    """SHA-256 of a file of the search for nodes that must stay precise; a 409 if there was none, or not yet."""
    if f"{PRECISION_FOLDER}precision.json" not in search.files:
        if job.request.get("precision") is None:
            raise Problem(409, "Precision was not asked for: make a job with the field 'precision'.")
        if search.precision is not None:
            raise Problem(409, f"There is nothing on precision, since it failed: {search.precision['problem']}")
        if JobState(search.state).ended:
            raise Problem(409, f"There is nothing on precision, since the target is {search.state}: {search.problem}")
        raise Problem(
            409,
            f"There is nothing on precision yet: the target is {search.state}. Wait with GET /v1/jobs/{{id}}?wait=60.",
        )
    sha256: str | None = search.files.get(f"{PRECISION_FOLDER}{name}")
    if sha256 is None:
        raise missing(english("file on precision"))
    return sha256


def file_address(job_url: str, path: str, target: int) -> str:
    """The URL of a target's file. `culprits/02-Exp/model.onnx` is at `culprits/2/model.onnx`, `repair/repaired.onnx` at
    `repair/model.onnx`, and other files are where their paths say.
    """
    if path.startswith(f"{REPAIR_FOLDER}repair."):
        return f"{job_url}/repair?target={target}&format={path.rpartition('.')[2]}"
    if path == _MODEL:
        path = f"{REPAIR_FOLDER}model.onnx"
    elif path.startswith("culprits/"):
        _, folder, name = path.split("/", 2)
        path = f"culprits/{culprit_number(folder)}/{name}"
    return f"{job_url}/{path}?target={target}"


def precision_document(service: Service, search: Search) -> object:
    """The document of the search for nodes that must stay precise; None if there is none."""
    sha256 = search.files.get(f"{PRECISION_FOLDER}precision.json")
    return None if sha256 is None else stored_json(service, sha256)


def repair_document(service: Service, search: Search) -> object:
    """The repair's document; None if there is none."""
    sha256 = search.files.get(_DOCUMENT)
    return None if sha256 is None else stored_json(service, sha256)
