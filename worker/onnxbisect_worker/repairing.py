"""Steps that ask about changed models: changed copies of the whole file before the search, and repairs.

A model process replays the step on all answers, and its next question becomes a search of its own.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from sqlalchemy.orm import Session

from onnxbisect.report.contents import Report
from onnxbisect.report.text import clip
from onnxbisect_db import repairs, searches
from onnxbisect_db.repairs import ChangedModel
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.states import Stage
from onnxbisect_db.tables import Search
from onnxbisect_worker import held_folders
from onnxbisect_worker.changed_models import asked_model, begun_of
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_processes.protocol import Changed, Question, Repaired
from onnxbisect_worker.reporting import FOLDERS, store_all

_LONGEST_REMEDY = 300

log = logging.getLogger(__name__)


def change(context: WorkerContext, claimed: ClaimedSearch, keeper: LeaseKeeper) -> None:
    """Continue the changed files, or the repair, of a claimed search."""
    cache = context.service.settings.cache
    with held_folders.temporary(cache / f"{FOLDERS}{uuid4().hex}") as folder:
        begun, left = keeper.write(lambda session: begun_of(session, claimed))
        with keeper.process() as process:
            step = process.change if claimed.stage is Stage.FILES else process.repair
            came = step(begun, folder)
        files = store_all(context.service.files, came.files)
        remedies = _remedies(context, claimed, came) if isinstance(came, Repaired) else {}
    asked = asked_model(context, claimed, begun, came, files, left) if isinstance(came, Question) else None
    keeper.write(lambda session: _written(session, claimed, came, files, asked, remedies))
    if asked is None:
        log.info("search %s: done with changed models", claimed.search.id)


def _remedies(context: WorkerContext, claimed: ClaimedSearch, repaired: Repaired) -> Mapping[str, str]:
    with context.service.database.session() as session:
        report = session.get_one(Search, claimed.search.id).report
    assert report is not None  # noqa: S101 - what is repaired has a report
    with context.service.files.open(report) as file:
        return remedies_of(json.load(file), json.loads(repaired.files["repair/repair.json"].read_bytes()))


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


def _written(
    session: Session,
    claimed: ClaimedSearch,
    came: Question | Changed | Repaired,
    files: Mapping[str, str],
    asked: ChangedModel | None,
    remedies: Mapping[str, str],
) -> None:
    if isinstance(came, Repaired):
        outcome = {name: getattr(came, name) for name in ("verdict", "changes", "left", "calls", "problem")}
        searches.repaired(session, claimed, outcome, files, remedies)
    elif isinstance(came, Changed):
        searches.changed(session, claimed, {} if came.compiles_after is None else asdict(came.compiles_after))
    elif asked is not None:
        repairs.ask(session, claimed, asked)
