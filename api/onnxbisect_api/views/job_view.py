"""Jobs as REST shows them."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from onnxbisect.report.words import computes_others
from onnxbisect.verdict import Status
from onnxbisect_api.parameters import Addresses, RowView
from onnxbisect_api.views.found import (
    PRECISION_FOLDER,
    REPAIR_FOLDER,
    file_address,
)
from onnxbisect_db import endpoints, queues, workers
from onnxbisect_db.states import COMPILING, Fault, JobState, Stage
from onnxbisect_db.tables import Job, Search
from onnxbisect_db.trouble import waits


class JobModel(BaseModel):
    """The job's model."""

    sha256: str
    name: str


class RepairView(BaseModel):
    """The result of a target's repair."""

    state: JobState
    verdict: Status | None = Field(description="that of the repaired model; there once the state is done")
    problem: str = Field(description="why it failed, or ended before its time")
    changes: int = Field(description="nodes that were replaced")
    left: int = Field(description="places that have no remedy")
    calls: int = Field(description="compiler calls")
    url: str | None = Field(description="where it is described")
    model: str | None = Field(description="where the repaired model is, where something was changed")

    @classmethod
    def of(cls, search: Search, url: str) -> Self:
        """The current result; `url` is that of the job."""
        came = search.repair or {"verdict": None, "problem": "", "changes": 0, "left": 0, "calls": 0}
        state = JobState(search.state)
        if search.repair is not None:
            state = JobState.DONE if f"{REPAIR_FOLDER}repair.json" in search.files else JobState.FAILED
        elif not state.ended and search.stage != Stage.REPAIR:
            state = JobState.QUEUED
        number = search.ordinal + 1
        return cls(
            state=state,
            url=f"{url}/repair?target={number}" if state is JobState.DONE else None,
            model=file_address(url, path, number)
            if (path := f"{REPAIR_FOLDER}repaired.onnx") in search.files
            else None,
            **came,
        )


class PrecisionView(BaseModel):
    """The result of a target's search for nodes that must stay precise."""

    state: JobState
    ending: Literal["minimal", "nothing", "budget"] | None = Field(
        description="`minimal`: each node was shown to be needed; `nothing`: all of it can be low; `budget`: it ended "
        "before that was known"
    )
    headline: str = Field(description="the outcome in one sentence")
    problem: str = Field(description="why it failed")
    keep: int = Field(description="nodes that must stay precise")
    asks: int = Field(description="measurements that the result rests on")
    url: str | None = Field(description="where `precision.json` is; the others are among the target's `files`")

    @classmethod
    def of(cls, search: Search, url: str) -> Self:
        """The current result; `url` is that of the job."""
        came = search.precision or {"ending": None, "headline": "", "problem": "", "keep": 0, "asks": 0}
        state = JobState(search.state)
        if search.precision is not None:
            state = JobState.FAILED if came["problem"] else JobState.DONE
        elif not state.ended and search.stage != Stage.PRECISION:
            state = JobState.QUEUED
        path = f"{PRECISION_FOLDER}precision.json"
        there = state is JobState.DONE and path in search.files
        return cls(state=state, url=file_address(url, path, search.ordinal + 1) if there else None, **came)


class TargetView(RowView):
    """One target of a job: `number` is the value for `?target=`."""

    number: int = Field(ge=1)
    backend: str
    options: dict[str, str]
    state: JobState
    verdict: Status | None = Field(description="there once the state is done")
    problem: str = Field(description="why it failed, or why it does not go on")
    fault: Fault | None = Field(
        description="who can mend the failure: `request` is for the client, `service` for the operator"
    )
    tool: str = Field(description="the compiler that answers, once it has said so")
    version: str
    units: int = Field(description="nodes that can be cut out; 0 until the model is read")
    calls: int = Field(description="compiler calls so far")
    expected: float = Field(description="compiler calls that are probably left")
    culprits: list[dict[str, Any]] = Field(description="the current culprits in short; the report has them in full")
    report: str | None = Field(description="where its report is, once it is written")
    repair: RepairView | None = Field(description="where one was asked for")
    precision: PrecisionView | None = Field(description="where it was asked for")
    files: dict[str, str] = Field(description="what goes with the report, by path beside it, and where each file is")
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, job: Job, search: Search, url: str, view_data: "JobViewData") -> Self:
        """The target as clients see it; `url` is that of the job."""
        number = search.ordinal + 1
        return cls.of_row(
            search,
            number=number,
            problem=search.problem or view_data.why_waiting(search),
            culprits=list(search.found.values()),
            report=f"{url}/report?target={number}" if search.report is not None else None,
            repair=None if job.request.get("repair") is None else RepairView.of(search, url),
            precision=None if job.request.get("precision") is None else PrecisionView.of(search, url),
            files={path: file_address(url, path, number) for path in search.files},
        )

    @property
    def computes_others(self) -> bool:
        """Whether the model compiles for it, and only its numbers are wrong."""
        return self.verdict is Status.FAIL and computes_others([it.get("failure", "") for it in self.culprits])


class WebhookView(BaseModel):
    """The job's own webhook, whose id admins can look up."""

    id: str
    url: str = Field(description="where it is described")
    deliveries: str = Field(description="where its messages are listed, with what came of each")


class JobView(RowView):
    """A job. When its state is done, its verdict is the worst of its targets'."""

    id: str
    url: str
    page: str = Field(description="the same for people, in a browser that has logged in")
    state: JobState
    verdict: Status | None
    problem: str = Field(description="why it failed, as a sentence")
    fault: Fault | None = Field(description="`request` where it failed for nothing but what was asked, else `service`")
    model: JobModel
    targets: list[TargetView]
    request: dict[str, Any] = Field(description="the request besides targets")
    labels: dict[str, str]
    priority: int
    webhook: WebhookView | None = Field(
        description="the webhook that was made with it; it receives the events of this job alone"
    )
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def computes_others(self) -> bool:
        """Whether it compiles for every target, and only its numbers are wrong for some."""
        failing = [target for target in self.targets if target.verdict is Status.FAIL]
        return self.verdict is Status.FAIL and all(target.computes_others for target in failing)

    @property
    def progress(self) -> tuple[int, int]:
        """The number of compiler calls so far, and the expected total."""
        calls = sum(target.calls for target in self.targets)
        left = sum(target.expected for target in self.targets if not target.state.ended)
        return calls, calls + round(left)

    @property
    def culprit_counts(self) -> dict[str, int]:
        """The current culprits counted by their ops, such as `Div + Erf`; the most frequent first."""
        kinds = Counter(" + ".join(culprit["ops"]) for target in self.targets for culprit in target.culprits)
        return dict(kinds.most_common())


class SubmittedView(JobView):
    """A new job. `webhook_secret` verifies the messages of its own webhook, and is shown only here."""

    webhook_secret: str | None = None


class PartsSubmitted(BaseModel):
    """The new jobs for several models, in order."""

    label: str = Field(description="which all of them have: `GET /v1/jobs?label=` lists them")
    report: str = Field(description="where the table of all of them is, once they have ended")
    jobs: list[SubmittedView]


@dataclass(frozen=True, kw_only=True)
class JobViewData:
    """Data for the views of some jobs that their rows do not contain.

    `offered` has the slots of live workers by backend, `paused` the backends that are limited to 0 probes, `waits` the
    failures for whose retry searches wait, and `webhooks` the ids of the jobs' own webhooks.
    """

    offered: Mapping[str, int]
    paused: frozenset[str]
    waits: Mapping[str, str]
    webhooks: Mapping[str, str]

    @classmethod
    def of(cls, session: Session, jobs: Collection[Job]) -> Self:
        """Read the current data. If all jobs have ended, as in most requests, backends are not queried."""
        webhooks = endpoints.of_jobs(session, jobs)
        if all(JobState(job.state).ended for job in jobs):
            return cls(offered={}, paused=frozenset(), waits={}, webhooks=webhooks)
        paused = frozenset(backend for backend, at_most in queues.limits(session).items() if not at_most)
        return cls(offered=workers.slots(session), paused=paused, waits=waits(session, jobs), webhooks=webhooks)

    def why_waiting(self, search: Search) -> str:
        """The reason why a search makes no progress; empty if none is known."""
        if JobState(search.state).ended:
            return ""
        if search.backend not in self.offered:
            return f"No worker with the backend '{search.backend}' is there now: it waits for one."
        if search.stage in (Stage.SEARCH, *COMPILING) and search.backend in self.paused:
            return f"The backend '{search.backend}' is paused: it waits until an admin lets it go on."
        return self.waits.get(search.id, "")


def job_view(job: Job, addresses: Addresses, view_data: JobViewData) -> JobView:
    """The job as clients see it."""
    url, webhook, fault = addresses.job(job.id), None, None
    if (webhook_id := view_data.webhooks.get(job.id)) is not None:
        webhook_url = addresses.webhook(webhook_id)
        webhook = WebhookView(id=webhook_id, url=webhook_url, deliveries=f"{webhook_url}/deliveries")
    if job.state == JobState.FAILED:
        to_request = all(search.fault == Fault.REQUEST for search in job.searches)
        fault = Fault.REQUEST if to_request else Fault.SERVICE
    return JobView.of_row(
        job,
        url=url,
        page=addresses.page(job.id),
        fault=fault,
        model=JobModel(sha256=job.model_sha256, name=job.model_name),
        targets=[TargetView.of(job, search, url, view_data) for search in job.searches],
        webhook=webhook,
    )
