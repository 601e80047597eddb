"""Two jobs beside each other: what a repair, or another version of a compiler, has changed."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from onnxbisect.report.compare import compare
from onnxbisect_api.access import Reader
from onnxbisect_api.found import document_of, job_of, report_of
from onnxbisect_api.names import UUID_PATTERN
from onnxbisect_api.problems import Problem
from onnxbisect_api.service import TheService
from onnxbisect_db.tables import Job, Search
from onnxbisect_worker.service import Service

router = APIRouter(tags=["reports"])

JobId = Annotated[str, Query(pattern=UUID_PATTERN)]


class TargetComparison(BaseModel):
    """One target of each job. `comparison` is `onnx-bisect/compare@1`."""

    a: int = Field(description="the number of the target in job a")
    b: int
    comparison: dict[str, Any] | None
    problem: str = Field(description="why there is no comparison: a report is missing")


class Comparison(BaseModel):
    """Targets are paired by backend and options; two jobs with one target each are compared whatever these are."""

    targets: list[TargetComparison]
    only_a: list[int] = Field(description="numbers of the targets that only job a has")
    only_b: list[int]


@router.get("/compare", summary="What has become of the culprits of job a in job b")
def compared(a: JobId, b: JobId, service: TheService, caller: Reader) -> Comparison:
    """Which are fixed, new and unchanged, and whether that is certain. 409 where no target can be compared."""
    with service.database.session() as session:
        before, after = job_of(session, a, caller), job_of(session, b, caller)
    pairs = _pairs(before, after)
    targets = [_compared(old, new, service) for old, new in pairs]
    if targets and all(target.comparison is None for target in targets):
        raise Problem(409, targets[0].problem)
    return Comparison(
        targets=targets,
        only_a=_left(before, {old.id for old, _ in pairs}),
        only_b=_left(after, {new.id for _, new in pairs}),
    )


def _compared(old: Search, new: Search, service: Service) -> TargetComparison:
    numbers = {"a": old.ordinal + 1, "b": new.ordinal + 1}
    try:
        names = report_of(old), report_of(new)
    except Problem as problem:
        return TargetComparison(**numbers, comparison=None, problem=problem.detail)
    before, after = (document_of(service, name) for name in names)
    return TargetComparison(**numbers, comparison=compare(before, after), problem="")


def _pairs(before: Job, after: Job) -> list[tuple[Search, Search]]:
    if len(before.searches) == len(after.searches) == 1:
        return [(before.searches[0], after.searches[0])]
    left = list(after.searches)
    pairs = []
    for old in before.searches:
        for new in left:
            if (old.backend, old.options) == (new.backend, new.options):
                pairs.append((old, new))
                left.remove(new)
                break
    return pairs


def _left(job: Job, paired: set[str]) -> list[int]:
    return [search.ordinal + 1 for search in job.searches if search.id not in paired]
