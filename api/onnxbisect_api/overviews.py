"""The overview of a job with several targets, from their reports."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from onnxbisect.report.overview import Overview, Subject, TargetReport, overview
from onnxbisect_api.found import document_of
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service

#: What was asked: a backend, its options as JSON, and how often the job has the same before.
_Target = tuple[str, str, int]


def labelled(jobs: Sequence[Job]) -> list[Mapping[str, Search]]:
    """The searches of each job by the labels of their targets. A label is the same target in all of these jobs."""
    asked = [_by_target(job) for job in jobs]
    targets = list(dict.fromkeys(target for searches in asked for target in searches))
    backends = Counter(backend for backend, *_ in targets)
    labels = {
        target: target[0] if backends[target[0]] == 1 else f"{target[0]}-{place}"
        for place, target in enumerate(targets, 1)
    }
    return [{labels[target]: search for target, search in searches.items()} for searches in asked]


def _by_target(job: Job) -> Mapping[_Target, Search]:
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[_Target, Search] = {}
    for search in job.searches:
        asked = (search.backend, json.dumps(search.options, sort_keys=True))
        found[(*asked, seen[asked])] = search
        seen[asked] += 1
    return found


def overview_of(job: Job, service: Service) -> Overview | None:
    """The overview; None if no target has a report."""
    asked = [asked_of(label, search, service) for label, search in labelled([job])[0].items()]
    reports = [each.report for each in asked if each.report is not None]
    return overview(Subject.of_report(reports[0]), asked) if reports else None


def asked_of(label: str, search: Search, service: Service) -> TargetReport:
    """A target's report, or the reason why there is none."""
    ended = search.state == JobState.CANCELLED
    if search.report is None:
        return TargetReport(label=label, backend=search.backend, reason=search.problem or search.state, ended=ended)
    return TargetReport(label=label, backend=search.backend, report=document_of(service, search.report))
