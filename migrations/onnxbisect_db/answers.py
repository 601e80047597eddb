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


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """The metric, measured with the nodes `keep` in high precision; `value` is None where it was no finite number.

    `shown` is the value for people, `work` the share of the model's work that these nodes do.
    """

    arithmetic: str
    keep: tuple[str, ...]
    work: float
    value: float | None
    shown: str
    why: str
