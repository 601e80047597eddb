"""Draws the probes of each worker on a common time axis, which shows how parallel a search was."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from onnxbisect.report.records import probe_name
from onnxbisect.report.text import clip
from onnxbisect_db.probe_queries import ProbeSummary

_WIDTH = 1000
_LANE = 12
#: The smallest width of a probe in the picture, so that it stays visible.
_NARROWEST = 1.5
#: Most vertical lines that mark rounds of the search.
_MOST_ROUNDS = 60
#: Most probes that have titles in the picture, because titles of more would be most of the page's bytes.
_MOST_TITLES = 600


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One worker: `busy` is the sum of its probes' times, which may exceed the elapsed time if it runs several."""

    worker: str
    probes: int
    busy: float
    picture: Markup


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The probes of all workers. `seconds` is the time from the first probe to the last answer.

    `at_a_time` is the average number of probes that ran at the same time.
    """

    lanes: tuple[Lane, ...]
    seconds: float
    rounds: int
    at_a_time: float


def timeline(probes: Sequence[ProbeSummary], until: datetime) -> Timeline | None:
    """The timeline; None if no worker has started a probe. `until` is the end of probes that are still running."""
    spans = {
        probe.id: (probe.started_at, max(probe.ended_at or until, probe.started_at))
        for probe in probes
        if probe.was_started and probe.started_at is not None
    }
    if not spans:
        return None
    drawn = sorted((probe for probe in probes if probe.id in spans), key=lambda probe: spans[probe.id])
    begin, end = min(start for start, _ in spans.values()), max(end for _, end in spans.values())
    seconds = max((end - begin).total_seconds(), 0.001)
    first: dict[int, float] = {}
    by_worker: dict[str, list[tuple[ProbeSummary, float, float]]] = {}
    for probe in drawn:
        start, stop = ((moment - begin).total_seconds() for moment in spans[probe.id])
        first[probe.round] = min(start, first.get(probe.round, start))
        by_worker.setdefault(probe.worker, []).append((probe, start, stop))
    rounds = sorted(first.values())[1:] if len(first) <= _MOST_ROUNDS else []
    scale = _WIDTH / seconds
    lanes = tuple(
        Lane(
            worker=worker,
            probes=len(mine),
            busy=sum(stop - start for _, start, stop in mine),
            picture=_picture(mine, scale, rounds, titled=len(drawn) <= _MOST_TITLES),
        )
        for worker, mine in sorted(by_worker.items())
    )
    return Timeline(
        lanes=lanes, seconds=seconds, rounds=len(first), at_a_time=sum(lane.busy for lane in lanes) / seconds
    )


def _picture(
    mine: Sequence[tuple[ProbeSummary, float, float]], scale: float, rounds: Sequence[float], *, titled: bool
) -> Markup:
    """The picture of one worker, as SVG; its concurrent probes are drawn below one another."""
    free: list[float] = []
    bars: list[Markup] = []
    for probe, start, stop in mine:
        row = next((row for row, since in enumerate(free) if since <= start), len(free))
        free[row : row + 1] = [stop]
        shape = Markup('<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
            probe.status or "open",
            min(start * scale, _WIDTH - _NARROWEST),
            row * _LANE + 1,
            max((stop - start) * scale, _NARROWEST),
            _LANE - 2,
        )
        if titled:
            words = f"{clip(probe.why, 80)}: {probe.status or 'running'}, {stop - start:.2f} s"
            shape += Markup("<title>{}</title>").format(words)
        # not in the tab order, because the table below has the same links
        bars.append(Markup('<a href="#{}" tabindex="-1">{}</a>').format(probe_name(probe.units, probe.attempt), shape))
    height = len(free) * _LANE
    marks = "".join(f"M{start * scale:.1f} 0v{height}" for start in rounds)
    return Markup(
        '<svg class="lane" viewBox="0 0 {} {}" height="{}" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>'
    ).format(_WIDTH, height, height, Markup('<path class="round" d="{}"/>').format(marks), Markup().join(bars))
