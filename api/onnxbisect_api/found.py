"""Look up a job of the caller, one of its targets, and their stored documents, or raise a problem."""

import json
from typing import cast

from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect.report.contents import Report
from onnxbisect_api.access import Caller
from onnxbisect_api.problems import Problem, missing
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
