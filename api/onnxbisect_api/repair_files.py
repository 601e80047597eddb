"""Responses with the files of a target's repair."""

from typing import Literal

from onnxbisect.language import english
from onnxbisect_api.found import stored_json
from onnxbisect_api.problems import Problem, missing
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service

#: Names of a repair's files in URLs.
FileName = Literal["model.onnx", "report.json"]

FOLDER = "repair/"
_DOCUMENT, _MODEL = f"{FOLDER}repair.json", f"{FOLDER}repaired.onnx"


def form_of(job: Job, search: Search, form: Literal["json", "md"]) -> str:
    """SHA-256 of the repair's document as JSON or Markdown; a 409 if there is none."""
    sha256: str | None = search.files.get(f"{FOLDER}repair.{form}")
    if sha256 is None:
        raise Problem(409, _why_not(job, search))
    return sha256


def file_of(job: Job, search: Search, name: FileName) -> str:
    """SHA-256 of the repaired model, or of the report on what is left."""
    form_of(job, search, "json")
    sha256: str | None = search.files.get(_MODEL if name == "model.onnx" else f"{FOLDER}{name}")
    if sha256 is None:
        raise missing(english("file of this repair"))
    return sha256


def address_of(job_url: str, path: str, target: int) -> str:
    """The URL of a repair's file: `repair/repaired.onnx` is at `repair/model.onnx`."""
    if path.startswith(f"{FOLDER}repair."):
        return f"{job_url}/repair?target={target}&format={path.rpartition('.')[2]}"
    name = "model.onnx" if path == _MODEL else path.removeprefix(FOLDER)
    return f"{job_url}/repair/{name}?target={target}"


def repair_document(service: Service, search: Search) -> object:
    """The repair's document; None if there is none."""
    sha256 = search.files.get(_DOCUMENT)
    return None if sha256 is None else stored_json(service, sha256)


def _why_not(job: Job, search: Search) -> str:
    if job.request.get("repair") is None:
        return "No repair was asked for: make a job with the field 'repair'."
    if search.repair is not None:
        return f"There is no repair, since it failed: {search.repair['problem']}"
    if search.state == JobState.FAILED:
        return f"There is no repair, since the target failed: {search.problem}"
    if search.state == JobState.CANCELLED:
        return "There is no repair, since the job was cancelled: retry it."
    return f"There is no repair yet: the target is {search.state}. Wait with GET /v1/jobs/{{id}}?wait=60."
