"""Steps that change the model: changed copies of the whole file before the search, and repairs."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from onnxbisect.exactness import Exactness
from onnxbisect.job import CompilesAfter
from onnxbisect.report.contents import Report
from onnxbisect.report.text import clip
from onnxbisect_db import searches
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_worker.changed_models import replayed
from onnxbisect_worker.lease_keeper import LeaseKeeper

_LONGEST_REMEDY = 300

log = logging.getLogger(__name__)


def change_file(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Continue the changed copies of the whole file of a claimed search."""
    done = replayed(keeper, lambda process, begun, _, folder: process.change(begun, folder))
    if done is None:
        return
    came, files = done
    before = keeper.claimed.search.compiles_after
    if came.file_after is not None and "model.onnx" in files:
        change = asdict(came.file_after)
        onnx, spec = files["model.onnx"], replace(keeper.spec, input_shapes={}, input_values={})  # it has them bound
        keeper.write(
            lambda session: searches.go_on_in(
                session, keeper.claimed, onnx=onnx, request=spec.to_json(), file_after=change
            )
        )
        log.info("search %s: going on in a changed file", keeper.claimed.search.id)
        return
    found, first = came.compiles_after, stored_change((before or {}).get("file_after"))
    if found is not None and first is not None:
        found = found.following(first)
    compiles_after = {} if found is None else asdict(found)
    keeper.write(lambda session: searches.changed(session, keeper.claimed, compiles_after))
    log.info("search %s: done with changed files", keeper.claimed.search.id)


def stored_change(stored: Mapping[str, Any] | None) -> CompilesAfter | None:
    """The change that `asdict` made these fields of; None for None."""
    if stored is None:
        return None
    typed = {"remedies": tuple(stored["remedies"]), "exactness": Exactness(stored["exactness"])}
    return CompilesAfter(**{**stored, **typed})


def repair(keeper: LeaseKeeper[ClaimedSearch]) -> None:
    """Continue the repair of a claimed search."""
    done = replayed(keeper, lambda process, begun, _, folder: process.repair(begun, folder))
    if done is None:
        return
    came, files = done
    claimed, store = keeper.claimed, keeper.service.files
    outcome = {name: getattr(came, name) for name in ("verdict", "changes", "left", "calls", "problem")}
    assert claimed.search.report is not None  # noqa: S101 - what is repaired has a report
    with store.open(claimed.search.report) as report, store.open(files["repair/repair.json"]) as repaired:
        remedies = remedies_of(json.load(report), json.load(repaired))
    keeper.write(lambda session: searches.repaired(session, claimed, outcome, files, remedies))
    log.info("search %s: done with the repair", claimed.search.id)


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
