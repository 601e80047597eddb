"""The progress of a search, for its page."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from onnxbisect.language import marked
from onnxbisect.report.text import duration
from onnxbisect.unitset import size
from onnxbisect.verdict_json import from_json
from onnxbisect_db import probe_queries
from onnxbisect_db.repairs import changed_model
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Probe, Search

_ANSWERS = 10
#: The number of calls from which the remaining time is estimated.
_CALLS = 3
_STEPS = {
    Stage.PREPARE: marked("Read the model"),
    Stage.FILES: marked("Try changed files"),
    Stage.SEARCH: marked("Ask the compiler"),
    Stage.REPORT: marked("Write the report"),
    Stage.REPAIR: marked("Repair"),
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


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a search. `calls` compiles are done, and about `expected` further ones take the time `left`.

    `left` is empty until it can be estimated.
    """

    steps: tuple[tuple[str, bool], ...]
    calls: int
    expected: int
    waiting: int
    left: str
    since: datetime | None
    asking: tuple[ClaimedProbe, ...]
    answers: tuple[RecentAnswer, ...]
    culprits: tuple[Mapping[str, Any], ...]


def progress(session: Session, search: Search, *, repairs: bool) -> Progress:
    """Read the progress of a running search; `repairs` tells that its job requests a repair.

    While the search compiles changed models, this is the progress of the current changed model.
    """
    asked = changed_model(session, search) if search.stage in (Stage.FILES, Stage.REPAIR) else search
    recent = probe_queries.recent(session, asked.id, answers=_ANSWERS)
    shown = {Stage.REPAIR: repairs, Stage.FILES: search.stage == Stage.FILES}
    steps = [(stage, name) for stage, name in _STEPS.items() if shown.get(stage, True)]
    return Progress(
        steps=tuple((name, search.started_at is not None and stage == search.stage) for stage, name in steps),
        # calls for changed files count as the search's own
        calls=asked.calls + (search.calls if search.stage == Stage.FILES else 0),
        expected=round(asked.expected),
        waiting=recent.waiting,
        left=_left(search, recent.since),
        since=search.started_at,
        asking=tuple(map(_claimed, recent.claimed)),
        answers=tuple(map(_recent_answer, recent.answers)),
        culprits=tuple(search.found.values()),
    )


def lasting(since: datetime) -> str:
    """The time since `since` as text; a script on the page counts on."""
    return _whole((datetime.now(UTC) - since).total_seconds())


def _whole(seconds: float) -> str:
    """The duration as text, in whole seconds."""
    return f"{max(int(seconds), 0)} s" if seconds < 10 else duration(int(seconds))


def _left(search: Search, since: datetime | None) -> str:
    """The remaining time as text, if calls end at the same rate as before; empty if it cannot be estimated."""
    if since is None or search.stage != Stage.SEARCH or search.calls < _CALLS or search.expected < 1:
        return ""
    pace = (datetime.now(UTC) - since).total_seconds() / search.calls
    return _whole(max(round(pace * search.expected), 1))


def _claimed(probe: Probe) -> ClaimedProbe:
    return ClaimedProbe(size=size(int(probe.units, 16)), why=probe.why, worker=probe.worker, since=probe.started_at)


def _recent_answer(probe: Probe) -> RecentAnswer:
    assert probe.verdict is not None  # noqa: S101 - answered probes have a verdict
    verdict = from_json(probe.verdict)
    return RecentAnswer(
        probe_id=probe.id,
        verdict=verdict.status.value,
        size=size(int(probe.units, 16)),
        why=probe.why,
        message=verdict.message,
        seconds=None if probe.cached else verdict.seconds,
    )
