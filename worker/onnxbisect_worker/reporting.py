"""The last step of a search: its report is written and stored with its files."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import cast

from onnxbisect.diagnosis import Certainty, CompilesAfter, CulpritKind
from onnxbisect.report import culprit_words, words
from onnxbisect.report.compare import passed_in
from onnxbisect.report.contents import Report
from onnxbisect.report.culprit_words import CulpritGroup
from onnxbisect.report.files import FORMS, culprit_dirs
from onnxbisect.report.text import clip, slug
from onnxbisect.verdict import Kind, Status
from onnxbisect_db import culprits, probe_queries, searches
from onnxbisect_db.culprits import FoundCulprit
from onnxbisect_db.finished import Findings, RefusedRow
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_requests.protocol import ModelProcess, ModelQuestion, ReportOutcome, StepProgress
from onnxbisect_worker.repairing import BudgetLeft, replayed, stored_change

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
        neighbours, after = _most_neighbours(keeper.spec, begun, left), _compiles_after(claimed)
        first = (claimed.search.compiles_after or {}).get("file_after")
        file_after = "" if first is None else first["sentence"]
        return process.report(
            begun, folder, logs=logs, compiles_after=after, file_after=file_after, neighbours=neighbours
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
    shown = [row for _, rows in culprit_words.rows(report) for row in rows]
    return Findings(
        headline=clip(report["headline"], _LINE),
        refused=tuple(_refused(report, row) for row in shown[:_ROWS]),
        more=max(0, len(shown) - _ROWS),
    )


def _refused(report: Report, row: CulpritGroup) -> RefusedRow:
    cause = culprit_words.of_culprit(report, row.culprit)
    said = words.failure(row.culprit).splitlines()
    return RefusedRow(
        ops=tuple(clip(op, _OP) for op in row.culprit["ops"][:_ROWS]),
        places=row.places,
        message=clip(said[0] if said else "", _LINE),
        cause="" if cause is None else clip(cause["text"], _LINE),
    )


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


def _most_neighbours(spec: SearchSpec, begun: StepProgress, left: BudgetLeft) -> int:
    """Calls allowed for neighbours, including those made; none is added once the budget is spent."""
    wanted, made = spec.confirm_causes, sum(it.calls for it in begun.replies)
    if left.nothing:
        return min(wanted, made)
    return wanted if left.calls is None else min(wanted, made + left.calls)


def _compiles_after(claimed: ClaimedSearch) -> CompilesAfter | None:
    found = claimed.search.compiles_after
    return stored_change(found) if found and "sentence" in found else None
