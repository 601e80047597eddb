"""Answers as workers pass them to model processes, which have no database."""

from dataclasses import dataclass

from onnxbisect.diagnosis import ProbeRecord


@dataclass(frozen=True, kw_only=True)
class AnsweredProbe(ProbeRecord):
    """An answered probe of a search, with the id under which its log is stored."""

    probe_id: str
    engine_seconds: float


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer about a changed model. `refused`: the model itself cannot be compiled, for the reason in `problem`.

    Without `refused`, a `problem` has nothing to do with the model.
    """

    question: str
    identity: str
    answers: tuple[AnsweredProbe, ...]
    calls: int
    rounds: int
    problem: str = ""
    refused: bool = False
