"""The page that compares two jobs: before and after a repair, two compilers, or two versions of one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator, StringConstraints

from onnxbisect.language import english, marked
from onnxbisect.report import words
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_words import numbers
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.parameters import UUID_PATTERN, TheService
from onnxbisect_api.routes.compare import Compared, Pair, compare_jobs
from onnxbisect_api.site.rendering import page
from onnxbisect_api.views.found import job_of
from onnxbisect_db import jobs
from onnxbisect_db.states import JobState
from onnxbisect_db.tables import Job, Search

router = APIRouter()

#: The number of newest jobs to choose from.
_OFFERED = 200

# Browsers also send empty fields of a form; these count as missing.
_Uuid = Annotated[str, StringConstraints(pattern=UUID_PATTERN)]
_JobId = Annotated[_Uuid | None, BeforeValidator(lambda value: value or None), Query()]


@dataclass(frozen=True, kw_only=True)
class _Fact:
    """A property of both jobs, as a row of the table."""

    name: str
    before: str
    after: str
    differs: bool


@dataclass(frozen=True, kw_only=True)
class _OpChange:
    """An op with different verdicts, or one that only one model has; then the other verdict is empty."""

    op: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """The comparison of two targets. `numbers_before` and `numbers_after` map a culprit's id to its number in the
    report of each job.
    """

    pair: Pair
    problem: str
    facts: Sequence[_Fact]
    ops: Sequence[_OpChange]
    numbers_before: Mapping[str, int]
    numbers_after: Mapping[str, int]

    @classmethod
    def of(cls, pair: Pair) -> Self:
        """The two reports side by side, or why there is nothing to compare."""
        if pair.before is None or pair.after is None:
            lacks = [
                _lack(name, search) for name, search in (("A", pair.old), ("B", pair.new)) if search.report is None
            ]
            return cls(
                pair=pair,
                problem=english("There is nothing to compare: {phrases}.", phrases=" and ".join(lacks)),
                facts=(),
                ops=(),
                numbers_before={},
                numbers_after={},
            )
        then, now = (
            {
                f"{row['domain']}::{row['op']}" if row["domain"] else str(row["op"]): words.op_verdict(report, row)
                for row in report["op_table"]
            }
            for report in (pair.before, pair.after)
        )
        return cls(
            pair=pair,
            problem="",
            facts=_facts(pair.before, pair.after),
            ops=[
                _OpChange(op=op, before=then.get(op, ""), after=now.get(op, ""))
                for op in sorted({*then, *now})
                if then.get(op) != now.get(op)
            ],
            numbers_before=numbers(pair.before),
            numbers_after=numbers(pair.after),
        )


@router.get("/compare", dependencies=[IN_TURN])
def compare_page(request: Request, service: TheService, caller: Reader, a: _JobId = None, b: _JobId = None) -> Response:
    """The comparison of jobs `a` and `b`, with lists to choose other jobs, those of a model of the same name first."""
    with service.database.session() as session:
        before, after = (None if job_id is None else job_of(session, job_id, caller) for job_id in (a, b))
        newest = jobs.list_page(session, caller.tenant, limit=_OFFERED).rows
    wanted = {job.id: job for job in (before, after) if job is not None}
    names = {job.model_name for job in wanted.values()}
    offered = sorted(
        [*wanted.values(), *(job for job in newest if job.id not in wanted)],
        key=lambda job: job.model_name not in names,
    )
    found: Compared | None = None
    if before is not None and after is not None and before.id != after.id:
        found = compare_jobs(before, after, service)
    return page(
        request,
        "compare.html.j2",
        caller,
        before=before,
        after=after,
        offered=offered,
        found=found,
        shown=[] if found is None else [_Shown.of(pair) for pair in found.pairs],
        label=_label,
    )


def _lack(name: str, search: Search) -> str:
    match JobState(search.state):
        case JobState.FAILED:
            return english("job {name} has failed ({sentence})", name=name, sentence=search.problem.rstrip("."))
        case JobState.CANCELLED:
            return english("job {name} was cancelled before it had a report", name=name)
        case JobState.QUEUED:
            return english("job {name} has no report yet: it is queued", name=name)
    return english("job {name} has no report yet: it is running", name=name)


def _facts(before: Report, after: Report) -> list[_Fact]:
    def both(name: str, read: Callable[[Report], str]) -> _Fact:
        return _Fact(name=name, before=read(before), after=read(after), differs=read(before) != read(after))

    return [
        both(marked("model"), lambda report: f"{report['model']['name']}, {report['model']['sha256'][:12]}"),
        both(marked("units"), lambda report: str(report["model"]["units"])),
        both(marked("target"), lambda report: words.target(report["target"])),
        both(marked("compiler"), lambda report: words.tool(report["target"])),
        both(marked("verdict"), lambda report: report["verdict"]),
        _Fact(
            name=marked("certificate"),
            before=before["certificate"]["sentence"],
            after=after["certificate"]["sentence"],
            differs=before["certificate"]["status"] != after["certificate"]["status"],  # sentences may differ in counts
        ),
    ]


def _label(job: Job) -> str:
    """A label that identifies a job in a list, even if it is cut at the end."""
    backends = ", ".join(dict.fromkeys(search.backend for search in job.searches))
    return f"{job.model_name} · {words.named(job.verdict or job.state)} · {job.created_at:%m-%d %H:%M:%S} · {backends}"
