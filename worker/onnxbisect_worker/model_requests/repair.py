"""Changed files and repairs in a model process: each call starts over with the known answers, up to the first missing
one.

All decisions follow from the answers, so the same answers lead to the same question.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from onnx_bisect.steps.alternatives import CulpritVerdicts, asked_with
from onnx_bisect.steps.changed_files import GoesOn, compiles_after
from onnx_bisect.steps.confirming import Answered
from onnx_bisect.steps.repair_compiler import NamedOptions, RepairCompiler, unanswered
from onnx_bisect.steps.repairing import repair_model, written
from onnxbisect.alternatives import CulpritsThenWhole
from onnxbisect.diagnosis import Alternative, CompletedDiagnosis, Diagnosis, Stats
from onnxbisect.errors import ModelError, OnnxBisectError
from onnxbisect.remedies import SearchedModel
from onnxbisect.search import plan
from onnxbisect.session import SearchRecord
from onnxbisect.verdict import Status
from onnxbisect_backends.contract import Backend
from onnxbisect_backends.custom_ops import CustomOps
from onnxbisect_backends.other_options import OtherOptions
from onnxbisect_backends.probing.loaded_model import LoadedModel
from onnxbisect_backends.probing.search_context import SearchContext
from onnxbisect_db.answers import AnsweredProbe, Reply
from onnxbisect_service.search_spec import RepairSpec
from onnxbisect_worker.model_requests import protocol

_OTHER_COMPILER = (
    "This worker has another compiler than the one that answered before, or other files or options of it: let all "
    "workers of a backend have the same, and retry the job."
)


_NO_OPTIONS: Mapping[str, str] = {}


class UnansweredError(Exception):
    """An answer about this model is missing."""

    def __init__(self, question: protocol.ModelQuestion) -> None:
        super().__init__("not answered yet")
        self.question = question


@dataclass(frozen=True, kw_only=True)
class ChangedModels:
    """Changes of the model of `context`. `onnx` is the SHA-256 of the model's stored file.

    `context_of` returns another model's search context for this compiler, `context_with` a model's for another one.
    `options` are those of the target that its messages may name. `goes_on`: the search may go on in a changed file; a
    repair begins with the model's own file, and goes on in a changed one itself.
    """

    onnx: str
    context: SearchContext
    context_of: Callable[[LoadedModel, bool], SearchContext]
    context_with: Callable[[LoadedModel, Backend], SearchContext]
    options: OtherOptions | None
    recheck: bool
    as_is: bool = False
    goes_on: bool = False

    def compiler(self, begun: protocol.StepProgress, folder: Path) -> RepairCompiler:
        """A compiler that answers from what is known. Models are written into `folder`."""
        replies = _Replies(self, begun)
        return RepairCompiler(
            loaded=self.context.loaded,
            search=replies,
            context_of=self.context_of,
            folder=folder,
            named=None if self.options is None else NamedOptions(options=self.options, ask=replies.with_options),
        )

    def file_of(self, loaded: LoadedModel) -> tuple[str, Mapping[str, Path]]:
        """The SHA-256 of a model's file, and the files of a question about it: none if it is the job's own."""
        if loaded is self.context.loaded:
            return self.onnx, {}
        return _digest(loaded.model.path), {"model.onnx": loaded.model.path}

    def job(
        self, context: SearchContext, answers: Sequence[AnsweredProbe], stats: Stats, *, brief: bool = False
    ) -> CompletedDiagnosis:
        """The job for these answers on a model, or on a piece, which is searched in brief."""
        verdicts = SearchRecord(records=answers).verdicts
        diagnosis = plan(context.universe, verdicts, recheck=self.recheck, brief=brief, as_is=self.as_is).diagnosis
        return context.job(diagnosis, answers, stats)


def changed_files_came_to(
    models: ChangedModels, begun: protocol.StepProgress, folder: Path
) -> protocol.ModelQuestion | protocol.ChangeOutcome:
    """The next question, or the changed copy of the file that compiles, or in which the search goes on."""
    whole = SearchedModel(job=models.job(models.context, begun.answers, begun.stats))

    try:
        compiler = models.compiler(begun, folder)
        after = compiles_after(whole, models.context, compiler, changes=not models.as_is)
    except UnansweredError as error:
        return error.question
    if not isinstance(after, GoesOn):
        return protocol.ChangeOutcome(compiles_after=after)
    if not models.goes_on:
        return protocol.ChangeOutcome(compiles_after=None)
    changed = {"model.onnx": after.saved(models.context.loaded, folder).model.path}
    return protocol.ChangeOutcome(compiles_after=None, file_after=after.change, files=changed)


@dataclass(frozen=True, kw_only=True)
class RepairWork:
    """A repair of the model of `models`, whose original name `named` gives to a job on it. `others` are further targets
    that compile its culprits.
    """

    models: ChangedModels
    spec: RepairSpec
    samples: Path | None
    model_name: str
    named: Callable[[CompletedDiagnosis], CompletedDiagnosis]
    others: Callable[[Sequence[str]], Iterable[tuple[Mapping[str, str], Backend]]]
    calibration: Path | None

    def run(self, begun: protocol.StepProgress, folder: Path) -> protocol.ModelQuestion | protocol.RepairOutcome:
        """The next question, or the result. Files are written into `folder`."""
        try:
            compiler = self.models.compiler(begun, folder)
            others = partial(self._alternatives, begun)
            repair, document = repair_model(
                compiler, self.models.context, self.spec, CustomOps(samples=self.samples), others=others
            )
        except UnansweredError as error:
            return error.question
        document = replace(document, model=self.model_name)  # the file here has a generated name
        if repair.model is None:  # nothing was changed: the report on what is left is on the original
            repair = replace(repair, after=replace(repair.after, job=self.named(repair.after.job)))
        files = {}
        for name, content in written(repair, document).items():
            files[f"repair/{name}"] = folder / name
            (folder / name).write_bytes(content)
        return protocol.RepairOutcome(
            verdict=Status(document.verdict),
            changes=len(document.changes),
            left=len(document.left),
            calls=document.repair_calls,
            problem="" if document.complete else "The budget was spent before the repair had ended.",
            files=files,
        )

    def _alternatives(
        self, begun: protocol.StepProgress, loaded: LoadedModel, diagnosis: Diagnosis
    ) -> list[Alternative]:
        """The answers with other options; raises UnansweredError. After the budget's end, missing ones are left out."""
        found: list[Alternative] = []
        culprits = [culprit.evidence.own for culprit in diagnosis.culprits]
        onnx, files = self.models.file_of(loaded)
        for changed, backend in self.others([culprit.message for culprit in diagnosis.culprits]):
            name = question_name(onnx, whole=False, options=changed)
            reply = begun.reply(name)
            if reply is None and begun.ended:
                break
            ask = partial(_asked, reply, protocol.ModelQuestion(files=files, options=changed))
            found.append(asked_with(changed, backend, loaded, culprits, self.calibration, ask))
        return found


def _asked(
    reply: Reply | None, question: protocol.ModelQuestion, other: SearchContext, _: Backend, planner: CulpritsThenWhole
) -> CulpritVerdicts:
    """The answer; UnansweredError if there is none."""
    if reply is None:
        raise UnansweredError(replace(question, pieces=tuple(planner.culprits)))
    problem = reply.problem if reply.identity == other.identity or reply.problem else _OTHER_COMPILER
    return CulpritVerdicts(records=() if problem else reply.answers, calls=reply.calls, problem=problem)


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


class _Replies:
    """Searches made by other workers (`repair_compiler.SearchModel`)."""

    def __init__(self, models: ChangedModels, begun: protocol.StepProgress) -> None:
        self._models, self._begun, self._paid = models, begun, begun.stats
        self._counted: set[str] = set()

    def __call__(
        self, model: LoadedModel, *, piece: bool, whole: bool, brief: bool, most_calls: int | None
    ) -> SearchedModel:
        own = self._models.context
        if model is own.loaded and (whole or self._begun.searched):
            paid, self._paid = self._paid, replace(self._paid, compiler_calls=0)  # requested twice, counted once
            return SearchedModel(job=self._models.job(own, self._begun.answers, paid))
        context = self._models.context_of(model, piece)
        path = model.model.path
        files = [path, *sorted(path.parent.glob("model.data"))] if piece else [path]
        names = ["model.onnx", *(it.name for it in files[1:])]
        question = protocol.ModelQuestion(
            files=dict(zip(names, files, strict=True)),
            piece=piece,
            whole=whole,
            brief=brief,
            doubted=tuple(model.doubted),
            most_calls=most_calls,
        )
        return self.about(context, question_name(_digest(path), whole=whole, brief=brief), question)

    def with_options(self, model: LoadedModel, changed: Mapping[str, str], backend: Backend) -> SearchedModel:
        """The whole model, compiled with changed options."""
        onnx, files = self._models.file_of(model)
        question = protocol.ModelQuestion(files=files, whole=True, options=changed)
        name = question_name(onnx, whole=True, options=changed)
        return self.about(self._models.context_with(model, backend), name, question)

    def about(self, context: SearchContext, name: str, question: protocol.ModelQuestion) -> SearchedModel:
        """The answer to the question of this name; UnansweredError if there is none."""
        reply = self._begun.reply(name)
        if reply is None:
            if self._begun.ended:
                return unanswered(context, "the budget is spent", stopped=True)
            raise UnansweredError(question)
        calls = 0 if name in self._counted else reply.calls
        self._counted.add(name)
        if reply.problem:
            raise ModelError(reply.problem) if reply.refused else OnnxBisectError(reply.problem)
        if context.identity != reply.identity:
            raise protocol.OtherVersionError(_OTHER_COMPILER)
        stats = Stats.of(reply.answers, calls=calls, rounds=reply.rounds, engine_seconds=0, wall_seconds=0)
        return SearchedModel(
            job=self._models.job(context, reply.answers, stats, brief=question.piece or question.brief)
        )


def answers_from(begun: protocol.StepProgress, identity: str) -> Callable[[Path], Answered]:
    """Returns answers about model files by the compiler of this identity; UnansweredError if there is none."""

    def answer(path: Path) -> Answered:
        reply = begun.reply(question_name(_digest(path), whole=True))
        if reply is None:
            raise UnansweredError(protocol.ModelQuestion(files={"model.onnx": path}, piece=True, whole=True))
        if reply.identity != identity or not reply.answers:
            return Answered(status=Status.UNRESOLVED, calls=reply.calls)
        return Answered(status=reply.answers[-1].verdict.status, calls=reply.calls)

    return answer


def question_name(onnx: str, *, whole: bool, brief: bool = False, options: Mapping[str, str] = _NO_OPTIONS) -> str:
    """The key of a question about a model; `onnx` is the SHA-256 of its ONNX file."""
    if options:
        onnx = sha256(f"{onnx} {json.dumps(options, sort_keys=True)}".encode()).hexdigest()
    return f"{onnx}-whole" if whole else f"{onnx}-brief" if brief else onnx
