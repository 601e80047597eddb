"""The coordinator of a search: replays the planner on all answers, and queues the probes that it wants.

The coordinator holds no state. One at a time works on a search, and writes its results in one transaction, so a crash
leaves all or none of them.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from sqlalchemy.orm import Session

from onnxbisect.alternatives import CulpritsThenWhole
from onnxbisect.diagnosis import Certainty, CompilesAfter, CulpritKind, Diagnosis
from onnxbisect.errors import OnnxBisectError
from onnxbisect.json_form import from_json
from onnxbisect.report import culprit_words, words
from onnxbisect.report.compare import passed_in
from onnxbisect.report.contents import Report
from onnxbisect.report.files import FORMS, culprit_dirs
from onnxbisect.report.text import clip, slug
from onnxbisect.search import plan
from onnxbisect.session import Ending, Planner, SearchRecord, Step, next_step, only_whole_model
from onnxbisect.unitset import UnitSet, members, size, spell, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status
from onnxbisect_db import culprits, plans, probe_queries, queues, searches, workers
from onnxbisect_db.culprits import FoundCulprit
from onnxbisect_db.events import Findings, RefusedRow
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.tables import Search
from onnxbisect_worker.context import machine_fault
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_requests.protocol import ModelProcess, ModelQuestion, ReportOutcome, StepProgress
from onnxbisect_worker.repairing import BudgetLeft, replayed

#: Most stored characters of a culprit's identity, of an op's name, and of other text.
_IDENTITY, _OP, _TEXT = 80, 120, 2000
#: Most stored ops of a culprit; one of kind capacity may have thousands.
_OPS = 64
#: Most rows, and most characters of a line, of findings.
_ROWS, _LINE = 10, 300

log = logging.getLogger(__name__)


def write_report(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Write the report of a claimed search."""
    claimed = keeper.claimed

    def step(
        process: ModelProcess, begun: StepProgress, left: BudgetLeft, folder: Path
    ) -> ModelQuestion | ReportOutcome:
        with keeper.service.database.session() as session:
            logs = probe_queries.failure_logs(session, claimed.search.id)
        after = claimed.search.compiles_after or {}
        first = after.get("file_after")
        # the calls for neighbours, including those made; none is added once the budget is spent
        neighbours, made = keeper.spec.confirm_causes, sum(it.calls for it in begun.replies)
        if left.nothing:
            neighbours = min(neighbours, made)
        elif left.calls is not None:
            neighbours = min(neighbours, made + left.calls)
        return process.report(
            begun,
            folder,
            logs=logs,
            compiles_after=from_json(after, CompilesAfter) if "sentence" in after else None,
            file_after="" if first is None else first["sentence"],
            neighbours=neighbours,
        )

    done = replayed(keeper, step)
    if done is None:
        return
    written, files = done
    document = written.document
    report = keeper.service.files.put([FORMS["report.json"](document).encode("utf-8", "backslashreplace")])
    verdict, found = Status(document["verdict"]), culprits_of(document, files, _earlier(keeper))
    findings = findings_of(document)
    keeper.write(
        lambda session: searches.finish(
            session, claimed, verdict=verdict, report=report.sha256, files=files, found=found, findings=findings
        )
    )
    log.info("search %s: over, %s", claimed.search.id, verdict)


@dataclass(frozen=True, kw_only=True)
class EarlierReport:
    """The report of another search of the same model and target with another compiler version."""

    search_id: str
    document: Report


def culprits_of(
    report: Report, files: Mapping[str, str], earlier: EarlierReport | None = None
) -> tuple[FoundCulprit, ...]:
    """The culprits that are more than suspected, with their stored `files`, and whether they passed `earlier`.

    A model that has taken over its process may have put anything into the report: then ValueError or KeyError.
    """
    culprits = report["culprits"]
    seconds = float(report["stats"]["compile_seconds"])
    if not isfinite(seconds):
        raise ValueError("The compiler's seconds are no number.")
    passed = (lambda _: False) if earlier is None else passed_in(earlier.document)
    return tuple(
        FoundCulprit(
            identity=slug(culprit["id"], _IDENTITY),
            kind=CulpritKind(culprit["kind"]),
            ops=[clip(op, _OP) for op in culprit["ops"][:_OPS]],
            failure=Kind(culprit["failure"]),
            message=clip(culprit["message"], _TEXT),
            cause=clip(report["causes"][culprit["cause"]]["text"], _TEXT),
            variant=clip(culprit_words.variant(culprit), _TEXT),
            seconds=seconds / len(culprits),
            files={
                path.removeprefix(f"{folder}/"): sha256
                for path, sha256 in files.items()
                if path.startswith(f"{folder}/")
            },
            passed_in=None if earlier is None or not passed(culprit) else earlier.search_id,
        )
        for culprit, folder in zip(culprits, culprit_dirs(report), strict=True)
        if culprit["certainty"] != Certainty.SUSPECTED
    )


def findings_of(report: Report) -> Findings:
    """The report in short, for messages. It raises what `culprits_of` does."""
    rows = [row for _, of_cause in culprit_words.rows(report) for row in of_cause]
    refused = []
    for row in rows[:_ROWS]:
        cause = culprit_words.of_culprit(report, row.culprit)
        message = words.failure(row.culprit).splitlines()
        refused.append(
            RefusedRow(
                ops=tuple(clip(op, _OP) for op in row.culprit["ops"][:_ROWS]),
                places=row.places,
                message=clip(message[0] if message else "", _LINE),
                cause="" if cause is None else clip(cause["text"], _LINE),
            )
        )
    return Findings(headline=clip(report["headline"], _LINE), refused=tuple(refused), more=max(0, len(rows) - _ROWS))


def _earlier(keeper: LeaseKeeper[ClaimedSearch]) -> EarlierReport | None:
    with keeper.service.database.session() as session:
        search = culprits.other_version(session, keeper.claimed.search.id)
    if search is None or search.report is None:
        return None
    try:
        with keeper.service.files.open(search.report) as file:
            return EarlierReport(search_id=search.id, document=cast(Report, json.load(file)))
    except FileNotFoundError:  # its job has been deleted
        return None


#: Most units of a culprit shown while the search runs.
_SHOWN = 8
#: Speculation costs a replay of the planner for every question or two.
_WIDEST = 32
#: Mean seconds of a search's compiles below which speculation costs more time than it saves.
_QUICK = 0.1


def coordinate(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Continue the plan of a claimed search."""
    claimed, universe = keeper.claimed, keeper.universe
    with keeper.service.database.session() as session:
        known, width = _known(session, keeper)
    step, refused = _next_step(keeper, known, width)
    over = step.ending is not None and not refused
    culprits = {} if refused else _found(universe, step.plan.diagnosis, over=over)

    def save(session: Session) -> int:
        new = plans.save(session, claimed, step.asks, expected=step.plan.expected, culprits=culprits)
        store = searches.await_changes if refused else searches.end_search if over else searches.release
        store(session, claimed)
        return new

    new = keeper.write(save)
    log.info(
        "search %s: claim %d, %d answers, %d questions, %d of them new%s",
        *(claimed.search.id, claimed.lease.epoch, len(known.records), len(step.asks), new),
        f"; over: {step.ending}" if over else "",
    )


def _next_step(keeper: LeaseKeeper[ClaimedSearch], known: SearchRecord, width: int) -> tuple[Step, bool]:
    """The next step, and whether the file was refused and changed copies of it come next."""
    spec, search, universe = keeper.spec, keeper.claimed.search, keeper.universe
    planner: Planner = partial(plan, recheck=spec.recheck, brief=spec.brief, as_is=spec.as_is)
    if spec.pieces:
        called = ", ".join(f"{name}={value}" for name, value in search.options.items())
        planner = CulpritsThenWhole(culprits=[int(units, 16) for units in spec.pieces], called=called)
    changed_model, digests = search.asked_for is not None, None
    if not changed_model:  # culprits of a changed model need no own files
        digests = partial(_digests, keeper)
    elif not known.records and not spec.pieces:
        width = 1  # a changed model is expected to pass: until it has failed, only the whole is compiled
    forms_differ = keeper.forms_differ and not (spec.pieces or spec.piece)
    step = next_step(universe, known, planner, width=width, digests=digests, forms_differ=forms_differ)
    whole = only_whole_model(step, universe)
    # only the whole is compiled before changed copies of the file, and these only if it was refused
    files_first = not changed_model and search.compiles_after is None
    refused = files_first and whole.ending is not None and step.plan.diagnosis.verdict is Status.FAIL
    # the form of the file is to blame: changed copies show which part of it
    tried_in_vain = "problem" in (search.compiles_after or {})
    refused = refused or (step.ending is Ending.FORM and not changed_model and not tried_in_vain)
    only_whole = spec.whole or refused or (files_first and whole.ending is None)
    return whole if only_whole else step, refused


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
        if keeper.ended or machine_fault(error) is not None:
            raise
        log.warning("search %s: its culprits' own files are not asked about: %s", keeper.claimed.search.id, error)
        return {}


def _found(universe: Universe, diagnosis: Diagnosis, *, over: bool) -> Mapping[str, Mapping[str, Any]]:
    """The culprits, by a name that stays the same while the culprit does.

    Suspected ones may prove innocent, so they are left out until the search is `over`.
    """
    found = {}
    for culprit in diagnosis.culprits:
        if culprit.certainty is Certainty.SUSPECTED and not over:
            continue
        units = list(members(culprit.units))[:_SHOWN]
        # of a capacity, no single unit is to blame
        places = 0 if culprit.kind is CulpritKind.CAPACITY else union(culprit.places)
        found[hashlib.sha256(f"{culprit.units:x}".encode()).hexdigest()[:16]] = {
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
    return found
