"""The overview of a job with several targets, from their reports."""

from collections.abc import Mapping

from onnxbisect.report.overview import Overview, Subject, TargetReport, overview
from onnxbisect_api.found import document_of
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service


def labelled(job: Job) -> Mapping[str, Search]:
    """The job's searches by the labels of their targets."""
    backends = [search.backend for search in job.searches]
    return {
        search.backend if backends.count(search.backend) == 1 else f"{search.backend}-{search.ordinal + 1}": search
        for search in job.searches
    }


def overview_of(job: Job, service: Service) -> Overview | None:
    """The overview; None if no target has a report."""
    asked = [asked_of(label, search, service) for label, search in labelled(job).items()]
    reports = [each.report for each in asked if each.report is not None]
    return overview(Subject.of_report(reports[0]), asked) if reports else None


def asked_of(label: str, search: Search, service: Service) -> TargetReport:
    """A target's report, or the reason why there is none."""
    ended = search.state == JobState.CANCELLED
    if search.report is None:
        return TargetReport(label=label, backend=search.backend, reason=search.problem or search.state, ended=ended)
    return TargetReport(label=label, backend=search.backend, report=document_of(service, search.report))
