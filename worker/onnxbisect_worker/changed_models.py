"""Questions about changed models, which steps of a search ask: the answers so far, and the next question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from onnxbisect.errors import OnnxBisectError
from onnxbisect.job import Stats
from onnxbisect_backends import registry, remote
from onnxbisect_db import probe_queries, repairs
from onnxbisect_db.answers import AnsweredProbe
from onnxbisect_db.database import now
from onnxbisect_db.repairs import ChangedModel
from onnxbisect_db.searches import ClaimedSearch
from onnxbisect_db.tables import Search
from onnxbisect_service.search_spec import SearchSpec
from onnxbisect_worker.context import WorkerContext
from onnxbisect_worker.model_processes.protocol import Begun, Question
from onnxbisect_worker.model_processes.repair import question_name

#: Most changed models per target, because a model that has taken over its process could ask for ever.
MOST_QUESTIONS = 300


@dataclass(frozen=True, kw_only=True)
class Left:
    """The remaining budget; None is unlimited."""

    calls: int | None
    seconds: float | None

    @property
    def nothing(self) -> bool:
        return (self.calls is not None and self.calls <= 0) or (self.seconds is not None and self.seconds <= 0)


def begun_of(session: Session, claimed: ClaimedSearch) -> tuple[Begun, Left]:
    """The answers so far on a claimed search and its changed models, and the remaining budget."""
    answers = probe_queries.answered(session, claimed.search.id)
    stats, replies = stats_of(session, claimed, answers), repairs.replies(session, claimed)
    spec = SearchSpec.from_json(claimed.request)
    calls = stats.compiler_calls + sum(it.calls for it in replies)
    passed = (now(session) - claimed.started_at).total_seconds()
    left = Left(
        calls=None if spec.budget_calls is None else spec.budget_calls - calls,
        seconds=None if spec.budget_seconds is None else spec.budget_seconds - passed,
    )
    searched = not claimed.search.compiles_after
    return Begun(answers=answers, stats=stats, replies=replies, ended=left.nothing, searched=searched), left


def asked_model(
    context: WorkerContext,
    claimed: ClaimedSearch,
    begun: Begun,
    question: Question,
    files: Mapping[str, str],
    left: Left,
) -> ChangedModel:
    """The search for a question: a model with the job's data files beside it, or with its own."""
    _demand_wanted(claimed, question)
    onnx = files.get("model.onnx", claimed.onnx)
    name = question_name(onnx, whole=question.whole, options=question.options)
    if name in {it.question for it in begun.replies}:
        raise OnnxBisectError("It is asked again what was answered: please report this.")
    if len(begun.replies) >= MOST_QUESTIONS:
        raise OnnxBisectError(f"It was given up after {MOST_QUESTIONS} changed models.")
    own = {location: sha256 for location, sha256 in files.items() if location != "model.onnx"}
    spec = replace(
        SearchSpec.from_json(claimed.request),
        budget_calls=left.calls,
        budget_seconds=left.seconds,
        repair=None,
        confirm_causes=0,
        whole=question.whole,
        pieces=tuple(f"{units:x}" for units in question.pieces),
    )
    if question.piece:
        spec = replace(spec, input_shapes={}, calibration={}, brief=True)
    data = own if question.piece else context.case(claimed).files
    return ChangedModel(question=name, onnx=onnx, data=data, request=spec.to_json(), options=question.options)


def _demand_wanted(claimed: ClaimedSearch, question: Question) -> None:
    """Check that the options of a question are those of the job and name nothing on this machine.

    A model may have taken over the process that asks.
    """
    if question.options:
        repair = SearchSpec.from_json(claimed.request).repair
        wanted = None if repair is None else repair.alternatives
        if wanted is None or not (wanted == "all" or question.options.keys() <= wanted.keys()):
            raise OnnxBisectError("Options were asked for that the job does not speak of.")
        remote.refuse_local(registry.find(claimed.search.backend), question.options)


def stats_of(session: Session, claimed: ClaimedSearch, answers: Sequence[AnsweredProbe]) -> Stats:
    """The cost of a search so far."""
    search = session.get_one(Search, claimed.search.id)
    return Stats.of(
        answers,
        calls=search.calls,
        rounds=search.round,
        engine_seconds=sum(answer.engine_seconds for answer in answers),
        wall_seconds=(now(session) - claimed.started_at).total_seconds(),
    )
