"""What a model process and its client say to each other: one JSON object a line, a request and then its answer.

The first line is the `Setup`. A request is `{"do": name, ...}`; an answer is `{"result": ...}`, or
`{"error": class, "text": sentence}`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onnxbisect import errors, verdict_json
from onnxbisect.answer import Answer
from onnxbisect.errors import OnnxBisectError
from onnxbisect.job import Stats
from onnxbisect_backends.contract import Confinement
from onnxbisect_backends.probing.prober import Asked
from onnxbisect_db.answered import Answered, Reply
from onnxbisect_service.order import Order
from onnxbisect_worker.model_processes.contract import Begun, ProcessLostError, ToolBrokenError

#: Of a process's folder, the one that it writes to. Beside it lies the lock.
OWN = "own"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A case, with the paths of its stored files, and the bounds under which it is worked on.

    `folder` is the process's own, `environment` the whole one that compilers get. `model` is the path of the ONNX file,
    `onnx` its SHA-256; `files`, `calibration` and `samples` are paths by location and by name. `compile_seconds` and
    `compile_memory` bound one compile, `seconds` and `memory` everything else. `hidden` are folders of which the
    process and its compiles see nothing, None where they see all that their user sees.
    """

    folder: str
    environment: Mapping[str, str]
    model: str
    onnx: str
    model_name: str
    files: Mapping[str, str]
    backend: str
    options: Mapping[str, str]
    order: Mapping[str, Any]
    calibration: Mapping[str, str]
    samples: Mapping[str, str]
    prepared: str | None
    cache: str
    cache_bytes: int
    compile_seconds: float
    compile_memory: int | None
    hidden: Sequence[str] | None
    isolation_required: bool
    seconds: float
    memory: int
    nodes: int

    @property
    def confinement(self) -> Confinement | None:
        """That of the model process and of every compile."""
        if self.hidden is None:
            return None
        return Confinement(hidden=tuple(map(Path, self.hidden)), required=self.isolation_required)

    @property
    def ordered(self) -> Order:
        """The order as a value."""
        return Order.from_json(self.order)

    def to_json(self) -> dict[str, Any]:
        """The fields for `Setup(**fields)`."""
        return asdict(self)


def failure(error: OnnxBisectError, text: str) -> dict[str, Any]:
    """The answer that `raised` reads."""
    return {"error": type(error).__name__, "text": text}


def raised(answer: Mapping[str, Any]) -> OnnxBisectError:
    """The error that a model process met."""
    for own in (ProcessLostError, ToolBrokenError):
        if answer["error"] == own.__name__:
            return own(answer["text"])
    kind = getattr(errors, str(answer["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, OnnxBisectError)):
        kind = OnnxBisectError
    return kind(str(answer.get("text")))


def asked_to_json(asked: Asked) -> dict[str, Any]:
    """What `asked_from_json` reads."""
    answer = asked.answer
    fields = None if answer is None else {**asdict(answer), "verdict": verdict_json.to_json(answer.verdict)}
    facts = {"compiled": asked.compiled, "interrupted": asked.interrupted, "engine_seconds": asked.engine_seconds}
    return {**facts, "answer": fields}


def asked_from_json(fields: Mapping[str, Any]) -> Asked:
    """What became of a question."""
    answer = fields["answer"]
    if answer is not None:
        answer = Answer(**{**answer, "verdict": verdict_json.from_json(answer["verdict"])})
    return Asked(**{**fields, "answer": answer})


def answered_to_json(answered: Answered) -> dict[str, Any]:
    """What `answered_from_json` reads."""
    return {**vars(answered), "units": f"{answered.units:x}", "verdict": verdict_json.to_json(answered.verdict)}


def answered_from_json(fields: Mapping[str, Any]) -> Answered:
    """One answered question of a search."""
    verdict = verdict_json.from_json(fields["verdict"])
    return Answered(**{**fields, "units": int(fields["units"], 16), "verdict": verdict})


def begun_to_json(begun: Begun) -> dict[str, Any]:
    """What `begun_from_json` reads."""
    replies = [{**vars(it), "answers": list(map(answered_to_json, it.answers))} for it in begun.replies]
    answers = list(map(answered_to_json, begun.answers))
    return {"answers": answers, "stats": asdict(begun.stats), "replies": replies, "ended": begun.ended}


def begun_from_json(fields: Mapping[str, Any]) -> Begun:
    """How far a repair is."""
    return Begun(
        answers=tuple(map(answered_from_json, fields["answers"])),
        stats=Stats(**fields["stats"]),
        replies=tuple(
            Reply(**{**it, "answers": tuple(map(answered_from_json, it["answers"]))}) for it in fields["replies"]
        ),
        ended=fields["ended"],
    )
