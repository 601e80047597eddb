"""Reads the facts about one probe, for its page."""

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from onnxbisect.fingerprint import plain
from onnxbisect.language import english
from onnxbisect.report.contents import probe_name
from onnxbisect.unitset import UnitSet, members, size, spell, units_in
from onnxbisect_api.access import Caller
from onnxbisect_api.errors.problems import missing
from onnxbisect_api.views.found import document_of, job_of
from onnxbisect_api.views.units import Names, PassedUnitsCache, StatesView, of_report, so_far
from onnxbisect_db import probe_queries
from onnxbisect_db.tables import Job, Probe, Search
from onnxbisect_service.service import Service


@dataclass(frozen=True, kw_only=True)
class TreeProbe:
    """A probe in the tree: `index` is its number in the order of the probes, `depth` the number of shown ancestors."""

    index: int
    parent: int | None
    depth: int


def parents(asked: Sequence[UnitSet]) -> list[int | None]:
    """The parent of each probe: the smallest earlier, larger probe that contains it, the first of equally small ones.

    The parent need not be the reason for the probe. The planner replays all answers each time and records no reasons,
    so only containment and order are known.
    """
    earlier: list[tuple[int, int]] = []
    found: list[int | None] = []
    for index, units in enumerate(asked):
        count = size(units)
        start = bisect_left(earlier, (count + 1, -1))
        # `is_subset` is inlined, which halves the time: two thousand probes have two million pairs
        around = (other for _, other in earlier[start:] if units & asked[other] == units)
        found.append(next(around, None))
        insort(earlier, (count, index))
    return found


def nested(parent: Sequence[int | None], shown: Collection[int]) -> list[TreeProbe]:
    """The `shown` probes, each after its nearest shown ancestor; siblings are in the order of the probes."""
    nearest: list[int | None] = []
    depth = [0] * len(parent)
    below: dict[int | None, list[int]] = {}
    for index, above in enumerate(parent):
        within = above if above is None or above in shown else nearest[above]
        nearest.append(within)
        if index in shown:
            depth[index] = 0 if within is None else depth[within] + 1
            below.setdefault(within, []).append(index)
    places: list[TreeProbe] = []
    left = below.get(None, [])[::-1]
    while left:
        index = left.pop()
        places.append(TreeProbe(index=index, parent=nearest[index], depth=depth[index]))
        left += below.get(index, [])[::-1]
    return places


_NAMED = 200


@dataclass(frozen=True, kw_only=True)
class UnitLine:
    """A unit of the probe, with its state."""

    number: int
    op: str
    name: str
    state: str


@dataclass(frozen=True, kw_only=True)
class ProbeFacts:
    """The facts about a probe. `again` are other attempts of it, `around` is the smallest probe that contains it.

    `units` are the first few of its `size` units; empty if the names of the model's units are not stored any more.
    """

    job: Job
    search: Search
    probe: probe_queries.ProbeSummary
    name: str
    key: str | None
    fingerprint: str
    size: int
    ranges: str
    around: probe_queries.ProbeSummary | None
    again: tuple[probe_queries.ProbeSummary, ...]
    units: tuple[UnitLine, ...]
    log: str


def probe_facts(service: Service, state: Any, caller: Caller, job_id: str, probe_id: str) -> ProbeFacts:
    """Read the facts; a 404 if the job has no such probe. `state` is the application's, with its caches."""
    known: PassedUnitsCache = state.passed_units
    names: Names = state.names
    with service.database.session() as session:
        job = job_of(session, job_id, caller)
        row = session.get(Probe, probe_id)
        search = next((search for search in job.searches if row is not None and search.id == row.search_id), None)
        if row is None or search is None:
            raise missing(english("probe of this job"))
        log = probe_queries.log(session, probe_id, caller.tenant)
        probes = probe_queries.summaries(session, search.id)
        passed = known.passed(session, search) if search.report is None else 0
    states = so_far(search, passed) if search.report is None else of_report(document_of(service, search.report))
    index = next(index for index, probe in enumerate(probes) if probe.id == probe_id)
    probe = probes[index]
    within = parents([each.units for each in probes[: index + 1]])[index]
    return ProbeFacts(
        job=job,
        search=search,
        probe=probe,
        name=probe_name(probe.units, probe.attempt),
        key=row.key,
        fingerprint=str((row.verdict or {}).get("fingerprint", "")),
        size=size(probe.units),
        ranges=spell(probe.units),
        around=None if within is None else probes[within],
        again=tuple(each for each in probes if each.units == probe.units and each.id != probe_id),
        units=_units(names, search, probe.units, states),
        log=plain(log or "").rstrip("\n"),
    )


def _units(names: Names, search: Search, units: UnitSet, states: StatesView) -> tuple[UnitLine, ...]:
    try:
        called = names.of(search.universe or "")
    except FileNotFoundError:
        return ()
    sorted_by = {state: units_in(text, len(called.names)) for state, text in states.states.items()}
    first = [unit for unit, _ in zip(members(units), range(_NAMED), strict=False)]
    return tuple(
        UnitLine(
            number=unit,
            op=called.ops[unit],
            name=called.names[unit],
            state=next((state for state, those in sorted_by.items() if those >> unit & 1), "unknown"),
        )
        for unit in first
        if unit < len(called.names)
    )
