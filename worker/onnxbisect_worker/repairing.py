"""Steps that change the model: changed copies of the whole file before the search, and repairs."""

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy.orm import Session

from onnxbisect.diagnosis import CompilesAfter, Stats
from onnxbisect.errors import OnnxBisectError
from onnxbisect.json_form import from_json, to_json
from onnxbisect.report.contents import Report
from onnxbisect.report.text import clip
from onnxbisect_backends import registry, remote
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_db import probe_queries, repairs, searches
from onnxbisect_db.files import FileStore
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.tables import Search
from onnxbisect_worker.lease_keeper import LeaseKeeper
from onnxbisect_worker.model_processes.pool import processes_folder
from onnxbisect_worker.model_requests.layout import temporary
from onnxbisect_worker.model_requests.protocol import ModelProcess, ModelQuestion, StepOutcome, StepProgress
from onnxbisect_worker.model_requests.repair import question_name

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
        change = to_json(came.file_after)
        onnx, spec = files["model.onnx"], replace(keeper.spec, input_shapes={}, input_values={})  # it has them bound
        keeper.write(
            lambda session: searches.go_on_in(
                session, keeper.claimed, onnx=onnx, request=spec.to_json(), file_after=change
            )
        )
        log.info("search %s: going on in a changed file", keeper.claimed.search.id)
        return
    found, first = came.compiles_after, (before or {}).get("file_after")
    if found is not None and first is not None:
        found = found.following(from_json(first, CompilesAfter))
    compiles_after = {} if found is None else to_json(found)
    keeper.write(lambda session: searches.store_changes(session, keeper.claimed, compiles_after))
    log.info("search %s: done with changed files", keeper.claimed.search.id)


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
    keeper.write(lambda session: searches.end_repair(session, claimed, outcome, files, remedies))
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


#: Most changed models per target, because a model that has taken over its process could ask for ever.
MOST_QUESTIONS = 300
_CHUNK = 1 << 20
#: Files of a step that are stored at a time: each waits for the disk or the file store, together they wait once.
_STORED_AT_A_TIME = 8

OutcomeT = TypeVar("OutcomeT", bound=StepOutcome)


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """The remaining budget; None is unlimited."""

    calls: int | None
    seconds: float | None

    @property
    def nothing(self) -> bool:
        return (self.calls is not None and self.calls <= 0) or (self.seconds is not None and self.seconds <= 0)


def replayed(
    keeper: LeaseKeeper[ClaimedSearch],
    step: Callable[[ModelProcess, StepProgress, BudgetLeft, Path], ModelQuestion | OutcomeT],
) -> tuple[OutcomeT, Mapping[str, str]] | None:
    """The outcome of a step with its stored files; None if it asks about a model, whose search is then queued."""
    with temporary(processes_folder(keeper.service.settings) / uuid4().hex) as folder:
        begun, left = keeper.write(lambda session: _begun(session, keeper))
        with keeper.process() as process:
            came = step(process, begun, left, folder)
        files = stored(keeper.service.files, came.files)
    if not isinstance(came, ModelQuestion):
        return came, files
    asked = _asked_model(keeper, begun, came, files, left)
    keeper.write(lambda session: repairs.ask(session, keeper.claimed, asked))
    return None


def stored(store: FileStore, written: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of files, which are stored, under the same names."""
    names = sorted(written)

    def store_file(name: str) -> str:
        with written[name].open("rb") as file:
            return store.put(iter(partial(file.read, _CHUNK), b"")).sha256

    with ThreadPoolExecutor(_STORED_AT_A_TIME) as threads:
        return dict(zip(names, threads.map(store_file, names), strict=True))


def _begun(session: Session, keeper: LeaseKeeper[ClaimedSearch]) -> tuple[StepProgress, BudgetLeft]:
    """The answers so far on a claimed search and its changed models, and the remaining budget."""
    claimed, budget = keeper.claimed, keeper.spec.budget_calls
    answers, replies = probe_queries.answered(session, claimed.search.id), repairs.replies(session, claimed)
    search = session.get_one(Search, claimed.search.id)
    elsewhere = sum(it.verdict.seconds for reply in replies for it in reply.answers if not it.cached)
    stats = Stats.of(
        answers,
        calls=search.calls,
        rounds=search.round,
        engine_seconds=sum(answer.engine_seconds for answer in answers),
        wall_seconds=keeper.seconds_passed(session),
    )
    stats = replace(stats, compile_seconds=stats.compile_seconds + elsewhere)
    calls = stats.compiler_calls + sum(it.calls for it in replies)
    left = BudgetLeft(calls=None if budget is None else budget - calls, seconds=keeper.seconds_left(session))
    searched = "sentence" not in (claimed.search.compiles_after or {})
    return StepProgress(answers=answers, stats=stats, replies=replies, ended=left.nothing, searched=searched), left


def _asked_model(
    keeper: LeaseKeeper[ClaimedSearch],
    begun: StepProgress,
    question: ModelQuestion,
    files: Mapping[str, str],
    left: BudgetLeft,
) -> repairs.ChangedModel:
    """The search for a question: a model with the job's data files beside it, or with its own."""
    _demand_wanted(keeper, question)
    onnx = files.get("model.onnx", keeper.claimed.onnx)
    name = question_name(onnx, whole=question.whole, brief=question.brief, options=question.options)
    if begun.reply(name) is not None:
        raise OnnxBisectError("It is asked again what was answered: please report this.")
    if len(begun.replies) >= MOST_QUESTIONS:
        raise OnnxBisectError(f"It was given up after {MOST_QUESTIONS} changed models.")
    own = {location: sha256 for location, sha256 in files.items() if location != "model.onnx"}
    spec = replace(
        keeper.spec,
        budget_calls=min((it for it in (left.calls, question.most_calls) if it is not None), default=None),
        budget_seconds=left.seconds,
        repair=None,
        confirm_causes=0,
        whole=question.whole,
        brief=question.piece or question.brief,
        pieces=tuple(f"{units:x}" for units in question.pieces),
        doubted=question.doubted,
    )
    if "model.onnx" in files:  # bound inputs are constants of the changed model
        left_out = spec.input_values.keys()
        kept = {it: dims for it, dims in spec.input_shapes.items() if it not in left_out}
        spec = replace(spec, input_shapes=kept, input_values={})
    if question.piece:
        spec = replace(spec, input_shapes={}, calibration={}, piece=True)
    data = own if question.piece else keeper.claimed.data
    return repairs.ChangedModel(question=name, onnx=onnx, data=data, request=spec.to_json(), options=question.options)


def _demand_wanted(keeper: LeaseKeeper[ClaimedSearch], question: ModelQuestion) -> None:
    """Check that the options of a question are those of the job, or may be named by messages, and local to no machine.

    A model may have taken over the process that asks.
    """
    if not question.options:
        return
    search, repair = keeper.claimed.search, keeper.spec.repair
    wanted = None if repair is None else repair.alternatives
    if wanted != "all":
        try:
            in_messages = OtherOptions.in_messages(search.backend, search.options)
        except OnnxBisectError:  # the backend is not installed here
            in_messages = None
        allowed = {*(wanted or ()), *(() if in_messages is None else in_messages.wanted)}
        if not question.options.keys() <= allowed:
            raise OnnxBisectError("Options were asked for that the job does not speak of.")
    remote.refuse_local(registry.find(search.backend), question.options)
