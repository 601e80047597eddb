"""Several reports in one table: the targets of a job, and the models of jobs with a common label."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from onnxbisect.report import words
from onnxbisect.report.compare import AskedModel, TargetReport
from onnxbisect.report.overview import Overview, overview
from onnxbisect.report.parts import ModelPart, PartsTable, parts_table
from onnxbisect.report.text import clip
from onnxbisect_api.views.found import document_of
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service

#: What was asked: a backend, its options as JSON, and how often the job has the same before.
_Target = tuple[str, str, int]


def labelled(jobs: Sequence[Job]) -> list[Mapping[str, Search]]:
    """The searches of each job by the labels of their targets. A label is the same target in all of these jobs."""
    asked: list[dict[_Target, Search]] = []
    for job in jobs:
        seen: Counter[tuple[str, str]] = Counter()
        asked.append({})
        for search in job.searches:
            target = (search.backend, json.dumps(search.options, sort_keys=True))
            asked[-1][(*target, seen[target])] = search
            seen[target] += 1
    targets = list(dict.fromkeys(target for searches in asked for target in searches))
    backends = Counter(backend for backend, *_ in targets)
    labels = {
        target: target[0] if backends[target[0]] == 1 else f"{target[0]}-{place}"
        for place, target in enumerate(targets, 1)
    }
    return [{labels[target]: search for target, search in searches.items()} for searches in asked]


def overview_of(job: Job, service: Service) -> Overview | None:
    """The overview; None if no target has a report."""
    asked = [asked_of(label, search, service) for label, search in labelled([job])[0].items()]
    reports = [each.report for each in asked if each.report is not None]
    return overview(AskedModel.of_report(reports[0]), asked) if reports else None


def asked_of(label: str, search: Search, service: Service) -> TargetReport:
    """A target's report, or the reason why there is none."""
    ended = search.state == JobState.CANCELLED
    if search.report is None:
        return TargetReport(label=label, backend=search.backend, reason=search.problem or search.state, ended=ended)
    return TargetReport(label=label, backend=search.backend, report=document_of(service, search.report))


#: Labels of jobs that one request created: `parts` has a common value, `part` the number of the job's model, from 1.
PARTS, PART = "parts", "part"


def newest(jobs: Sequence[Job]) -> list[Job]:
    """The newest job on each model, in the order of the parts; `jobs` are sorted newest first."""

    def place(job: Job) -> tuple[int, str]:
        number = str(job.labels.get(PART, ""))
        return (int(number) if number.isdecimal() and len(number) < 6 else 0), job.id

    return sorted({job.model_sha256: job for job in reversed(jobs)}.values(), key=place)


def named(jobs: Sequence[Job]) -> dict[str, Job]:
    """The jobs by the names that their models have in the table."""
    found: dict[str, Job] = {}
    for number, job in enumerate(jobs, 1):
        label = clip(PurePath(job.model_name).stem, 64)
        found[label if label not in found else f"{label}-{number}"] = job
    return found


def table_of(jobs: Sequence[Job], service: Service) -> PartsTable:
    """The table of ended jobs, with a reason for each target without a report."""
    searches = labelled(jobs)
    targets = {label: search.backend for of_job in searches for label, search in of_job.items()}
    parts = []
    for (name, job), of_job in zip(named(jobs).items(), searches, strict=True):
        asked = [
            asked_of(target, of_job[target], service)
            if target in of_job
            else TargetReport(label=target, backend=backend, reason="the job was not asked on this target", ended=True)
            for target, backend in targets.items()
        ]
        reports = [each.report for each in asked if each.report is not None]
        subject = AskedModel.of_report(reports[0]) if reports else None
        parts.append(ModelPart(label=name, name=job.model_name, subject=subject, asked=asked))
    for part in parts:
        targets |= {each.label: words.target(each.report["target"]) for each in part.asked if each.report is not None}
    return parts_table(parts, targets)
