"""Steps that change the model: changed copies of the whole file before the search, and repairs."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onnxbisect.report.contents import Report
from onnxbisect.report.text import clip
from onnxbisect_db import searches
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Search
from onnxbisect_worker.changed_models import BudgetLeft, replayed
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_requests.protocol import (
    ChangeOutcome,
    ModelProcess,
    ModelQuestion,
    RepairOutcome,
    StepProgress,
)

_LONGEST_REMEDY = 300

log = logging.getLogger(__name__)


def change(context: WorkerContext, claimed: ClaimedSearch, keeper: LeaseKeeper) -> None:
    """Continue the changed files, or the repair, of a claimed search."""

    def step(
        process: ModelProcess, begun: StepProgress, _: BudgetLeft, folder: Path
    ) -> ModelQuestion | ChangeOutcome | RepairOutcome:
        return process.change(begun, folder) if claimed.stage is Stage.FILES else process.repair(begun, folder)

    done = replayed(context, claimed, keeper, step)
    if done is None:
        return
    came, files = done
    if isinstance(came, RepairOutcome):
        outcome = {name: getattr(came, name) for name in ("verdict", "changes", "left", "calls", "problem")}
        remedies = _remedies(context, claimed, files)
        keeper.write(lambda session: searches.repaired(session, claimed, outcome, files, remedies))
    elif isinstance(came, ChangeOutcome):
        compiles_after = {} if came.compiles_after is None else asdict(came.compiles_after)
        keeper.write(lambda session: searches.changed(session, claimed, compiles_after))
    log.info("search %s: done with changed models", claimed.search.id)


def _remedies(context: WorkerContext, claimed: ClaimedSearch, files: Mapping[str, str]) -> Mapping[str, str]:
    store = context.service.files
    with context.service.database.session() as session:
        report = session.get_one(Search, claimed.search.id).report
    assert report is not None  # noqa: S101 - what is repaired has a report
    with store.open(report) as file, store.open(files["repair/repair.json"]) as repair:
        return remedies_of(json.load(file), json.load(repair))


def remedies_of(report: Report, repair: Mapping[str, Any]) -> dict[str, str]:
    """By culprit identity, the rules that replaced it by nodes that the compiler accepts."""
    rules = {
        change["node"]: {rule["id"] for rule in change["rules"]} for change in repair["changes"] if change["compiles"]
    }
    found = {}
    for culprit in report["culprits"]:
        nodes = (node for place in culprit["occurrences"] for node in place)
        used = {rule for node in nodes for rule in rules.get(node, ())}
        if used:
            found[culprit["id"]] = clip(", ".join(sorted(used)), _LONGEST_REMEDY)
    return found
