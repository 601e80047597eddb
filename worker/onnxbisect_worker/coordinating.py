"""The coordinator of a search: replays the planner on all answers, and queues the probes that it wants.

The coordinator holds no state. One at a time works on a search, and writes its results in one transaction, so a crash
leaves all or none of them.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from sqlalchemy.orm import Session

from onnxbisect.alternatives import CulpritsThenWhole
from onnxbisect.diagnosis import Certainty, CulpritKind, DiagnosedCulprit, Diagnosis
from onnxbisect.errors import OnnxBisectError
from onnxbisect.report.ranges import spell
from onnxbisect.report.text import clip
from onnxbisect.search import plan
from onnxbisect.session import Ending, Planner, SearchRecord, next_step, only_whole_model
from onnxbisect.unitset import UnitSet, members, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status
from onnxbisect_db import plans, probe_queries, queues, searches, workers
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.tables import Search
from onnxbisect_worker.context import outside
from onnxbisect_worker.lease_keeper import LeaseKeeper

#: Most units of a culprit shown while the search runs.
_SHOWN = 8
#: Speculation costs a replay of the planner for every question or two.
_WIDEST = 32
#: Mean seconds of a search's compiles below which speculation costs more time than it saves.
_QUICK = 0.1

log = logging.getLogger(__name__)


def coordinate(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Continue the plan of a claimed search."""
    claimed, spec, universe = keeper.claimed, keeper.spec, keeper.universe
    with keeper.service.database.session() as session:
        known, width = _known(session, keeper)
    planner: Planner = partial(plan, recheck=spec.recheck, brief=spec.brief)
    if spec.pieces:
        called = ", ".join(f"{name}={value}" for name, value in claimed.search.options.items())
        planner = CulpritsThenWhole(culprits=[int(units, 16) for units in spec.pieces], called=called)
    # culprits of a changed model need no own files
    digests = partial(_digests, keeper) if claimed.search.asked_for is None else None
    # a changed model is expected to pass: until it has failed, only the whole is compiled
    width = width if known.records or spec.pieces or claimed.search.asked_for is None else 1
    forms_differ = keeper.forms_differ and not (spec.pieces or spec.brief)
    step = next_step(universe, known, planner, width=width, digests=digests, forms_differ=forms_differ)
    whole = only_whole_model(step, universe)
    # only the whole is compiled before changed copies of the file, and these only if it was refused
    files_first = claimed.search.asked_for is None and claimed.search.compiles_after is None
    refused = files_first and whole.ending is not None and step.plan.diagnosis.verdict is Status.FAIL
    # the form of the file is to blame: changed copies show which part of it
    tried_in_vain = "problem" in (claimed.search.compiles_after or {})
    refused = refused or (step.ending is Ending.FORM and claimed.search.asked_for is None and not tried_in_vain)
    if spec.whole or refused or (files_first and whole.ending is None):
        step = whole
    over = step.ending is not None and not refused
    culprits = {} if refused else _found(universe, step.plan.diagnosis, over=over)

    def save(session: Session) -> int:
        new = plans.save(session, claimed, step.asks, expected=step.plan.expected, culprits=culprits)
        come_to = searches.refused if refused else searches.searched if over else searches.release
        come_to(session, claimed)
        return new

    new = keeper.write(save)
    log.info(
        "search %s: claim %d, %d answers, %d questions, %d of them new%s",
        *(claimed.search.id, claimed.lease.epoch, len(known.records), len(step.asks), new),
        f"; over: {step.ending}" if over else "",
    )


def _known(session: Session, keeper: LeaseKeeper[ClaimedSearch]) -> tuple[SearchRecord, int]:
    """The answers of the search, and the number of compiles to plan for: its own that run, and slots that only its
    speculation could use.
    """
    search, calls = keeper.claimed.search, keeper.spec.budget_calls
    here = probe_queries.known_probes(session, search.id)
    slots = workers.slots(session).get(search.backend, 0)
    quick = bool(here.answers) and fmean(it.verdict.seconds for it in here.answers) < _QUICK
    idle = 0 if quick else queues.idle(session, search.backend, search.id, slots)
    seconds_left = keeper.seconds_left(session)
    known = SearchRecord(
        records=here.answers,
        in_flight=here.claimed,
        calls_left=None if calls is None else calls - session.get_one(Search, search.id).calls - len(here.claimed),
        out_of_time=seconds_left is not None and seconds_left <= 0,
    )
    return known, min(max(len(here.claimed) + idle, 1), _WIDEST)


def _digests(keeper: LeaseKeeper[ClaimedSearch], pieces: Sequence[UnitSet]) -> dict[UnitSet, str]:
    """The SHA-256 of the files of these pieces; empty if the model cannot be read, which is logged."""
    try:
        with keeper.process() as process:
            return dict(zip(pieces, process.digests(pieces), strict=True))
    except OnnxBisectError as error:
        if keeper.ended or outside(error) is not None:
            raise
        log.warning("search %s: its culprits' own files are not asked about: %s", keeper.claimed.search.id, error)
        return {}


def _found(universe: Universe, diagnosis: Diagnosis, *, over: bool) -> Mapping[str, Mapping[str, Any]]:
    """The culprits, by a name that stays the same while the culprit does.

    Suspected ones may prove innocent, so they are left out until the search is `over`.
    """
    return {
        _name(culprit): _words(universe, culprit)
        for culprit in diagnosis.culprits
        if over or culprit.certainty is not Certainty.SUSPECTED
    }


def _name(culprit: DiagnosedCulprit) -> str:
    return hashlib.sha256(f"{culprit.units:x}".encode()).hexdigest()[:16]


def _words(universe: Universe, culprit: DiagnosedCulprit) -> dict[str, Any]:
    units = list(members(culprit.units))[:_SHOWN]
    places = 0
    if culprit.kind is not CulpritKind.CAPACITY:  # no single unit is to blame
        for place in culprit.places:
            places |= place
    return {
        "ops": [clip(universe.op[unit], 80) for unit in units],
        "nodes": [clip(name, 200) for unit in units for name in universe.names[unit][:1]],
        "size": size(culprit.units),
        "units": spell(culprit.units),
        "places": spell(places),
        "occurrences": len(culprit.places),
        "kind": culprit.kind.value,
        "certainty": culprit.certainty.value,
        "failure": culprit.failure.value,
        "message": clip(culprit.message, 300),
    }
