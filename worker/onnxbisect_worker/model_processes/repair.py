"""What a model process does for a repair: runs it from the beginning, on the known answers, until one is missing.

All that a repair decides follows from the answers, so the same answers lead to the same question.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from onnxbisect.errors import BackendUnusableError, ModelError, OnnxBisectError
from onnxbisect.job import Job, Stats
from onnxbisect.proof import Tolerance
from onnxbisect.remedies import Found
from onnxbisect.rewrites import Exactness
from onnxbisect.search import plan
from onnxbisect.session import Known
from onnxbisect_backends.probing.inquiry import Inquiry
from onnxbisect_backends.probing.intake import Intake
from onnxbisect_backends.probing.repair_compiler import RepairCompiler, unanswered
from onnxbisect_backends.probing.repairing import Terms, repair_model, written
from onnxbisect_db.answered import Answered, Reply
from onnxbisect_service.order import RepairOrder
from onnxbisect_worker.model_processes.protocol import Begun, Question, Repaired

_OTHER_COMPILER = (
    "This worker has another compiler than the one that answered before, or other files or options of it: let all "
    "workers of a backend have the same, and retry the job."
)


class UnansweredError(Exception):
    """The repair goes no further without an answer about this model."""

    def __init__(self, question: Question) -> None:
        super().__init__("not answered yet")
        self.question = question


@dataclass(frozen=True, kw_only=True)
class RepairWork:
    """A repair of the model of `inquiry`, which was searched; `inquire` puts other models before the same compiler."""

    inquiry: Inquiry
    inquire: Callable[[Intake, bool], Inquiry]
    order: RepairOrder
    samples: Path | None
    recheck: bool
    model_name: str

    def run(self, begun: Begun, folder: Path) -> Question | Repaired:
        """Until an answer is missing, or to its end. Files are written into `folder`."""
        compiler = RepairCompiler(
            intake=self.inquiry.intake,
            search=_Replies(self, begun),
            inquire=lambda intake: self.inquire(intake, False),
            folder=folder,
        )
        order = self.order
        terms = Terms(
            allow=Exactness(order.allow),
            samples=self.samples,
            count=order.count,
            tolerance=Tolerance(absolute=order.absolute, relative=order.relative),
        )
        try:
            repair, document = repair_model(compiler, self.inquiry, terms)
        except UnansweredError as error:
            return error.question
        document = replace(document, model=self.model_name)  # the file here has a name of ours
        outcome = {
            "verdict": document.verdict,
            "changes": len(document.changes),
            "left": len(document.left),
            "calls": document.repair_calls,
            "problem": "" if document.complete else "The budget was spent before the repair had ended.",
        }
        files = {}
        for name, content in written(repair, document).items():
            files[f"repair/{name}"] = folder / name
            (folder / name).write_bytes(content)
        return Repaired(outcome=outcome, files=files)


class _Replies:
    """Searches that were made elsewhere (`repair_compiler.Search`)."""

    def __init__(self, work: RepairWork, begun: Begun) -> None:
        self._work, self._begun = work, begun
        self._replies = {it.question: it for it in begun.replies}
        self._paid = begun.stats

    def __call__(self, model: Intake, *, piece: bool, whole: bool) -> Found:
        if model is self._work.inquiry.intake:
            paid, self._paid = self._paid, replace(self._paid, compiler_calls=0)  # asked twice, paid once
            return Found(job=self._job(self._work.inquiry, self._begun.answers, paid))
        inquiry = self._work.inquire(model, piece)
        path = model.model.path
        name = question_name(sha256(path.read_bytes()).hexdigest(), whole=whole)
        reply = self._replies.get(name)
        if reply is not None:
            return self._found(inquiry, reply)
        if self._begun.ended:
            return unanswered(inquiry, "the budget is spent", stopped=True)
        own = [path, *sorted(path.parent.glob("model.data"))] if piece else [path]
        names = ["model.onnx", *(it.name for it in own[1:])]
        raise UnansweredError(Question(files=dict(zip(names, own, strict=True)), piece=piece, whole=whole))

    def _found(self, inquiry: Inquiry, reply: Reply) -> Found:
        if reply.problem:
            raise ModelError(reply.problem) if reply.refused else OnnxBisectError(reply.problem)
        if inquiry.identity != reply.identity:
            raise BackendUnusableError(_OTHER_COMPILER)
        stats = Stats.of(reply.answers, calls=reply.calls, rounds=reply.rounds, engine_seconds=0, wall_seconds=0)
        return Found(job=self._job(inquiry, reply.answers, stats))

    def _job(self, inquiry: Inquiry, answers: Sequence[Answered], stats: Stats) -> Job:
        verdicts = Known(records=answers).verdicts
        diagnosis = plan(inquiry.universe, verdicts, recheck=self._work.recheck).diagnosis
        return inquiry.job(diagnosis, answers, stats)


def question_name(onnx: str, *, whole: bool) -> str:
    """What a repair calls a model that it asks about; `onnx` is the SHA-256 of its ONNX file."""
    return f"{onnx}-whole" if whole else onnx
