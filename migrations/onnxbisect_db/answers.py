"""Answers in the form in which workers pass them to model processes, which have no database."""

from dataclasses import dataclass

from onnxbisect.job import ProbeRecord


@dataclass(frozen=True, kw_only=True)
class AnsweredProbe(ProbeRecord):
    """An answered probe of a search, and the id under which its log is stored."""

    probe_id: str
    engine_seconds: float


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What was answered about a changed model. `refused` says that it cannot be asked about for its own sake, as
    `problem` says in a sentence; any other problem is none of the model.
    """

    question: str
    identity: str
    answers: tuple[AnsweredProbe, ...]
    calls: int
    rounds: int
    problem: str = ""
    refused: bool = False
