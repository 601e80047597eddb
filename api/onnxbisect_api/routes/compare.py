"""Two jobs compared: the effect of a repair, or of another version of a compiler."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from onnxbisect.report.compare import Comparison as ReportComparison
from onnxbisect_api import comparing
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.found import job_of
from onnxbisect_api.parameters import UUID_PATTERN, TheService
from onnxbisect_api.problems import Problem

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
def compared(a: JobId, b: JobId, service: TheService, caller: Reader) -> JobComparison:
    """Which culprits are fixed, new and unchanged, and whether that is certain. 409 if no target can be compared."""
    with service.database.session() as session:
        before, after = job_of(session, a, caller), job_of(session, b, caller)
    found = comparing.compared(before, after, service)
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
