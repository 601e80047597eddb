"""Two jobs compared: the effect of a repair, or of another version of a compiler."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from onnxbisect.report.compare import Comparison as ReportComparison
from onnxbisect.report.compare import compare
from onnxbisect.report.contents import Report
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.errors.problems import Problem
from onnxbisect_api.parameters import UUID_PATTERN, TheService
from onnxbisect_api.views.found import document_of, job_of, report_of
from onnxbisect_db.tables import Job, Search
from onnxbisect_service.service import Service


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One target of each job. If it is missing in one, there is a `problem` instead of reports and `comparison`."""

    old: Search
    new: Search
    before: Report | None = None
    after: Report | None = None
    comparison: ReportComparison | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Targets are paired by backend and options, and what is left by backend; two jobs with one target each are always
    compared.
    """

    pairs: tuple[Pair, ...]
    only_before: tuple[Search, ...]
    only_after: tuple[Search, ...]


def compare_jobs(before: Job, after: Job, service: Service) -> Compared:
    """The culprits of job `before` compared with those of job `after`."""
    alike = _alike(before, after)
    paired = {search.id for pair in alike for search in pair}
    pairs = []
    for old, new in alike:
        try:
            names = report_of(old), report_of(new)
        except Problem as problem:
            pairs.append(Pair(old=old, new=new, problem=problem.detail))
            continue
        then, now = (document_of(service, name) for name in names)
        pairs.append(Pair(old=old, new=new, before=then, after=now, comparison=compare(then, now)))
    return Compared(
        pairs=tuple(pairs),
        only_before=tuple(search for search in before.searches if search.id not in paired),
        only_after=tuple(search for search in after.searches if search.id not in paired),
    )


def _alike(before: Job, after: Job) -> list[tuple[Search, Search]]:
    if len(before.searches) == len(after.searches) == 1:
        return [(before.searches[0], after.searches[0])]
    left = list(after.searches)
    pairs: list[tuple[Search, Search]] = []
    for same_options in (True, False):
        for old in before.searches:
            if any(old is paired for paired, _ in pairs):
                continue
            others = (new for new in left if new.backend == old.backend)
            found = next((new for new in others if not same_options or new.options == old.options), None)
            if found is not None:
                pairs.append((old, found))
                left.remove(found)
    return sorted(pairs, key=lambda pair: pair[0].ordinal)


router = APIRouter(tags=["reports"])

JobId = Annotated[str, Query(pattern=UUID_PATTERN)]


class TargetComparison(BaseModel):
    """One target of each job."""

    a: int = Field(description="the number of the target in job a")
    b: int
    comparison: ReportComparison | None
    problem: str = Field(description="why there is no comparison: a report is missing")


class JobComparison(BaseModel):
    """Targets are paired by backend and options; two jobs with one target each are always compared."""

    targets: list[TargetComparison]
    only_a: list[int] = Field(description="numbers of the targets that only job a has")
    only_b: list[int]


@router.get("/compare", summary="Compare the culprits of two jobs", dependencies=[IN_TURN])
def get_comparison(a: JobId, b: JobId, service: TheService, caller: Reader) -> JobComparison:
    """Which culprits are fixed, new and unchanged, and whether that is certain. 409 if no target can be compared."""
    with service.database.session() as session:
        before, after = job_of(session, a, caller), job_of(session, b, caller)
    found = compare_jobs(before, after, service)
    if found.pairs and all(pair.comparison is None for pair in found.pairs):
        raise Problem(409, found.pairs[0].problem)
    return JobComparison(
        targets=[
            TargetComparison(
                a=pair.old.ordinal + 1, b=pair.new.ordinal + 1, comparison=pair.comparison, problem=pair.problem
            )
            for pair in found.pairs
        ],
        only_a=[search.ordinal + 1 for search in found.only_before],
        only_b=[search.ordinal + 1 for search in found.only_after],
    )
