"""The pages of a search's probes: their times, workers, results and logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import RedirectResponse
from markupsafe import Markup
from sqlalchemy.orm import Session

from onnxbisect.language import english
from onnxbisect.report.contents import probe_name
from onnxbisect.report.text import clip
from onnxbisect.unitset import UnitSet, full, size
from onnxbisect_api.access import IN_TURN, Reader
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.parameters import RowId, TheService
from onnxbisect_api.routes.reports import TargetNumber
from onnxbisect_api.site.probe_facts import nested, parents, probe_facts
from onnxbisect_api.site.rendering import page
from onnxbisect_api.views.found import job_of, search_of
from onnxbisect_api.views.units import Names
from onnxbisect_db.probe_queries import ProbeSummary, summaries
from onnxbisect_db.states import JobState, ProbeState
from onnxbisect_db.tables import Job, Search

#: Most visible steps; with more units, several share a step.
_STEPS = 120
_NONE, _SOME, _ALL = range(3)


def bar(units: UnitSet, total: int) -> Markup:
    """The bar: solid where the probe has all units, pale where it has some. CSS classes around it set the colours."""
    steps = max(min(total, _STEPS), 1)
    solid, pale = "", ""
    x = 0
    kinds = []
    for step in range(steps):
        start, end = step * total // steps, (step + 1) * total // steps
        here = units >> start & full(end - start)
        kinds.append(_NONE if here == 0 else _ALL if size(here) == end - start else _SOME)
    for kind, run in groupby(kinds):
        width = sum(1 for _ in run)
        if kind == _ALL:
            solid += f"M{x} 4h{width}"
        elif kind == _SOME:
            pale += f"M{x} 4h{width}"
        x += width
    return Markup(
        '<svg class="reach" viewBox="0 0 {} 8" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>'
    ).format(
        steps,
        Markup('<path d="{}"/>').format(solid) if solid else "",
        Markup('<path class="some" d="{}"/>').format(pale) if pale else "",
    )


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


router = APIRouter()

#: Most rows of one page, about a megabyte.
_MOST = 2000
#: Most rows of a page that updates itself.
_LIVE = 300
_DEEPEST = 12

_Filter = Literal["pass", "fail", "unresolved", "running", "waiting", "dropped"]
_STATES = {ProbeState.QUEUED: "waiting", ProbeState.RUNNING: "running", ProbeState.DROPPED: "dropped"}
#: A probe's id in the database, or its name in the report.
_ProbeName = Annotated[str, Path(pattern="^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|p[0-9a-f]{10})$")]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row of the table. `after` is the number of seconds from the first probe to this one."""

    probe: ProbeSummary
    name: str
    within: str
    indent: int
    outcome: str
    size: int
    bar: Markup
    after: float | None


@router.get("/jobs/{job_id}/probes", dependencies=[IN_TURN])
def probe_list_page(
    job_id: RowId,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
    unit: Annotated[int | None, Query(ge=0)] = None,
    verdict: _Filter | None = None,
    start: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """The probes of one target, by default the first.

    `unit` and `verdict` filter the probes: those that contain the unit, those with the result.
    """
    with service.database.session() as session:
        job, search = _search(session, job_id, caller, target)
        probes = summaries(session, search.id)
    if unit is not None:
        if unit >= search.units:
            raise missing(english("unit of this model"))
        probes = [probe for probe in probes if probe.units >> unit & 1]
    counts: dict[str, int] = {}
    for probe in probes:
        counts[outcome(probe)] = counts.get(outcome(probe), 0) + 1
    rows = _rows(probes, search.units, verdict)

    def address(**changed: object) -> str:
        query = {"target": search.ordinal + 1, "unit": unit, **changed}
        return f"/jobs/{job_id}/probes?{urlencode({name: value for name, value in query.items() if value is not None})}"

    return page(
        request,
        "probes.html.j2",
        caller,
        job=job,
        search=search,
        unit=unit,
        unit_name=None if unit is None else _unit_name(request, search, unit),
        verdict=verdict,
        counts=counts,
        total=sum(probe.was_started for probe in probes),
        rows=rows[start : start + _MOST],
        start=start,
        found=len(rows),
        following=start + _MOST if start + _MOST < len(rows) else None,
        previous=max(start - _MOST, 0) if start else None,
        # a timeline of filtered probes would show workers as idle that were not
        timeline=timeline(probes, datetime.now(UTC)) if unit is None and verdict is None else None,
        live=not JobState(search.state).ended and len(rows) <= _LIVE,
        address=address,
    )


@router.get("/jobs/{job_id}/probes/{name}", dependencies=[IN_TURN])
def probe_page(
    job_id: RowId,
    name: _ProbeName,
    request: Request,
    service: TheService,
    caller: Reader,
    target: TargetNumber = None,
) -> Response:
    """The page of one probe, given by its id, or by its name in the target's report."""
    if name.startswith("p"):
        with service.database.session() as session:
            _, search = _search(session, job_id, caller, target)
            probes = summaries(session, search.id)
        found = next((probe.id for probe in probes if probe_name(probe.units, probe.attempt) == name), None)
        if found is None:
            raise missing(english("probe of this target"))
        return RedirectResponse(f"/jobs/{job_id}/probes/{found}", 303)
    facts = probe_facts(service, request.app.state, caller, job_id, name)
    return page(request, "probe.html.j2", caller, facts=facts, outcome=outcome(facts.probe))


def outcome(probe: ProbeSummary) -> str:
    """The probe's verdict, or its state if it has none."""
    return str(probe.status) if probe.status is not None else _STATES.get(probe.state, "unresolved")


def _search(session: Session, job_id: str, caller: Reader, target: int | None) -> tuple[Job, Search]:
    job = job_of(session, job_id, caller)
    return job, search_of(job, target or 1)


def _rows(probes: Sequence[ProbeSummary], units: int, wanted: _Filter | None) -> list[_Row]:
    parent = parents([probe.units for probe in probes])
    shown = {
        index
        for index, probe in enumerate(probes)
        if (probe.was_started if wanted is None else outcome(probe) == wanted)
    }
    begin = min((probe.started_at for probe in probes if probe.was_started and probe.started_at), default=None)
    names = [probe_name(probe.units, probe.attempt) for probe in probes]
    rows = []
    for place in nested(parent, shown):
        probe = probes[place.index]
        asked_at = probe.started_at if probe.was_started else None
        rows.append(
            _Row(
                probe=probe,
                name=names[place.index],
                within="" if place.parent is None else names[place.parent],
                indent=min(place.depth, _DEEPEST),
                outcome=outcome(probe),
                size=size(probe.units),
                bar=bar(probe.units, units),
                after=(asked_at - begin).total_seconds() if asked_at is not None and begin is not None else None,
            )
        )
    return rows


def _unit_name(request: Request, search: Search, unit: int) -> tuple[str, str] | None:
    """Op and name of a unit; None if the names are not stored any more."""
    names: Names = request.app.state.names
    try:
        called = names.of(search.universe or "")
        return called.ops[unit], called.names[unit]
    except (FileNotFoundError, IndexError):
        return None
