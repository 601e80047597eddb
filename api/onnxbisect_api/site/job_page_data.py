"""The state of a job for its page: the job, the selected target, and the states of its units."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy.orm import Session

from onnxbisect.diagnosis import Certainty
from onnxbisect.finished import translated
from onnxbisect.json_form import from_json
from onnxbisect.language import _, english, marked
from onnxbisect.report import words
from onnxbisect.report.text import duration, plural
from onnxbisect.unitset import size
from onnxbisect.verdict import Status, Verdict
from onnxbisect_api.access import Caller
from onnxbisect_api.parameters import Addresses
from onnxbisect_api.views.found import job_of, search_of
from onnxbisect_api.views.job_view import JobView, JobViewData, TargetView, job_view
from onnxbisect_api.views.units import PassedUnitsCache, StatesView, so_far
from onnxbisect_db import measurements, probe_queries, search_queue
from onnxbisect_db.repairs import changed_model
from onnxbisect_db.states import JobState, Stage
from onnxbisect_db.tables import Job, Measurement, Probe, Search
from onnxbisect_service.service import Service

_ANSWERS = 10
#: The number of calls from which the remaining time is estimated.
_CALLS = 3
_STEPS = {
    Stage.PREPARE: marked("Read the model"),
    Stage.FILES: marked("Try changed files"),
    Stage.SEARCH: marked("Ask the compiler"),
    Stage.REPORT: marked("Write the report"),
    Stage.REPAIR: marked("Repair"),
    Stage.PRECISION: marked("Measure precision"),
}


@dataclass(frozen=True, kw_only=True)
class ClaimedProbe:
    """A probe that a worker has claimed."""

    size: int
    why: str
    worker: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True)
class RecentAnswer:
    """A probe with its answer. `seconds` is None if the answer was cached."""

    probe_id: str
    verdict: str
    size: int
    why: str
    message: str
    seconds: float | None

    @classmethod
    def of(cls, probe: Probe) -> Self:
        """From a stored probe that has an answer."""
        assert probe.verdict is not None  # noqa: S101 - answered probes have a verdict
        verdict = from_json(probe.verdict, Verdict)
        return cls(
            probe_id=probe.id,
            verdict=verdict.status.value,
            size=size(int(probe.units, 16)),
            why=probe.why,
            message=verdict.message,
            seconds=None if probe.cached else verdict.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class SearchProgress:
    """The progress of a search. `calls` compiles are done, and about `expected` further ones take the time `left`.

    `left` is empty until it can be estimated. `measured` are the latest measurements of precision, None at other
    stages.
    """

    steps: tuple[tuple[str, bool], ...]
    calls: int
    expected: int
    waiting: int
    left: str
    since: datetime | None
    asking: tuple[ClaimedProbe, ...]
    answers: tuple[RecentAnswer, ...]
    measured: tuple[Measurement, ...] | None
    culprits: tuple[Mapping[str, Any], ...]


def progress(session: Session, search: Search, requested: Mapping[str, Any]) -> SearchProgress:
    """Read the progress of a running search, of a job that has `requested` this.

    While the search compiles changed models, this is the progress of the current changed model.
    """
    asked = changed_model(session, search) if search.stage in (Stage.FILES, Stage.REPAIR) else search
    recent = probe_queries.recent(session, asked.id, answers=_ANSWERS)
    wanted = {stage: requested.get(stage.value) is not None for stage in (Stage.REPAIR, Stage.PRECISION)}
    measures = search.stage == Stage.PRECISION
    shown = {**wanted, Stage.FILES: search.stage == Stage.FILES}
    steps = [(stage, name) for stage, name in _STEPS.items() if shown.get(stage, True)]
    left = ""  # until the calls so far tell how fast the others will end
    known = search.stage == Stage.SEARCH and search.calls >= _CALLS and search.expected >= 1
    if recent.since is not None and known:
        pace = (datetime.now(UTC) - recent.since).total_seconds() / search.calls
        left = _whole(max(round(pace * search.expected), 1))
    calls = asked.calls
    if measures:
        calls = measurements.count(session, search)
    elif search.stage == Stage.FILES:  # calls for changed files count as the search's own
        calls += search.calls
    return SearchProgress(
        steps=tuple((name, search.started_at is not None and stage == search.stage) for stage, name in steps),
        calls=calls,
        expected=round(asked.expected),
        waiting=recent.waiting,
        left=left,
        since=search.started_at,
        asking=tuple(
            ClaimedProbe(size=size(int(it.units, 16)), why=it.why, worker=it.worker, since=it.started_at)
            for it in recent.claimed
        ),
        answers=() if measures else tuple(map(RecentAnswer.of, recent.answers)),
        measured=tuple(measurements.latest(session, search, _ANSWERS)) if measures else None,
        culprits=tuple(search.found.values()),
    )


def lasting(since: datetime) -> str:
    """The time since `since` as text; a script on the page counts on."""
    return _whole((datetime.now(UTC) - since).total_seconds())


def _whole(seconds: float) -> str:
    """The duration as text, in whole seconds."""
    return f"{max(int(seconds), 0)} s" if seconds < 10 else duration(int(seconds))


@dataclass(frozen=True, kw_only=True)
class JobPageData:
    """The state of a job's page: that of one target, or without `search` and `target` the overview of several.

    `progress` is present while the target's search is running, `states` once a worker has read the model. A target that
    waits has `ahead` jobs of its tenant before it.
    """

    row: Job
    job: JobView
    search: Search | None
    target: TargetView | None
    progress: SearchProgress | None
    states: StatesView | None
    ahead: int = 0

    @property
    def shape(self) -> str:
        """A name for the parts that the page has; when it changes, the page must be reloaded."""
        if self.target is None:
            return "ended" if self.job.state.ended else "going"
        if self.progress is None:
            return "over"
        if self.target.report is not None:
            return "repairing" if self.progress.measured is None else "measuring"
        return "asking" if self.states is not None else "reading"

    @property
    def going(self) -> bool:
        """Whether anything on the page may still change."""
        return not self.job.state.ended

    def content(self) -> dict[str, Any]:
        """The values for the templates of the page's head and of its live part."""
        return {
            "job": self.job,
            "target": self.target,
            "progress": self.progress,
            "sentence": self.sentence,
            "asked": self.asked,
            "as_sentence": _sentence,
            "going": self.going,
            "drawable": self.search is not None and self.search.graph is not None,
            "lasting": lasting,
        }

    @property
    def sentence(self) -> str:
        """How far the target is, or of several targets the job."""
        target = self.target
        if target is None:
            ended = sum(it.state.ended for it in self.job.targets)
            if not self.job.state.ended:
                return english("{ended} of {all} targets have ended.", ended=ended, all=len(self.job.targets))
            if self.job.state is not JobState.DONE:
                return self.job.problem
            fine = sum(it.verdict is Status.PASS for it in self.job.targets)
            return english(
                "{model} compiles for {fine} of {all} targets.",
                model=self.job.model.name,
                fine=fine,
                all=len(self.job.targets),
            )
        if target.state is JobState.DONE and target.verdict is not None:
            certain = sum(culprit.get("certainty") == Certainty.CONFIRMED for culprit in target.culprits)
            name, asked, others = self.job.model.name, self.asked(target), target.computes_others
            return words.headline(target.verdict, name, asked, certain, others=others)
        if target.state is JobState.FAILED:
            return target.problem
        if target.state is JobState.CANCELLED:
            return english("It was cancelled after {calls}.", calls=plural(target.calls, "compiler call"))
        if target.problem:  # the reason why the target waits
            return target.problem
        if target.state is JobState.QUEUED:
            if self.ahead:
                return english("It waits behind {jobs} with this backend.", jobs=plural(self.ahead, "other job"))
            return english("It waits for a worker that is free.")
        stage = self.search.stage if self.search is not None else Stage.PREPARE
        if stage == Stage.PREPARE:
            return english("The model is being read.")
        culprits = plural(len(target.culprits), "culprit")
        if stage == Stage.REPORT:
            if not target.culprits:
                return english("No culprit found; the report is being written.")
            return english("{culprits} found; the report is being written.", culprits=culprits)
        return (
            english("{culprits} found so far.", culprits=culprits)
            if target.culprits
            else english("No culprit found so far.")
        )

    @staticmethod
    def asked(target: TargetView) -> str:
        """A description of the target: `whitelist (profile=edgesam)`."""
        return words.target({"backend": target.backend, "options": target.options})


def job_page_data(
    service: Service, known: PassedUnitsCache, caller: Caller, addresses: Addresses, job_id: str, number: int | None
) -> JobPageData:
    """Read the current data; a 404 if the caller's tenant has no such job or target."""
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        view = job_view(job, addresses, JobViewData.of(session, [job]))
        if number is None and len(job.searches) > 1:
            return JobPageData(row=job, job=view, search=None, target=None, progress=None, states=None)
        search = search_of(job, number)
        over = search.stage == Stage.OVER
        return JobPageData(
            row=job,
            job=view,
            search=search,
            target=view.targets[search.ordinal],
            progress=None if over else progress(session, search, job.request),
            ahead=search_queue.ahead(session, search, job) if search.state == JobState.QUEUED else 0,
            states=None if over or search.report or not search.units else so_far(search, known.passed(session, search)),
        )


#: What a command line calls what the form for a new job has a field for.
_OPTION = re.compile(r"with --input-shape (\S+=[\d,]+)")


def _sentence(text: str) -> str:
    """The text in the reader's language, as a sentence."""
    text = _OPTION.sub(r"with \1 under Input shapes", translated(text)).strip().rstrip(".。")
    first = text.partition(" ")[0]
    # a name, such as net.onnx or pulsar2, stays as it is written
    return _("{sentence}.", sentence=f"{text[:1].upper() if first.isalpha() else text[:1]}{text[1:]}") if text else ""
