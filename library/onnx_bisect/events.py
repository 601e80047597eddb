"""The events of a search. Each is a frozen dataclass; `str(event)` is a line for people.

Names and messages come from models and compilers and are not escaped in the fields; `str` escapes control characters.
"""

from collections.abc import Callable
from dataclasses import dataclass

from onnxbisect.answer import Ask
from onnxbisect.diagnosis import Certainty, Diagnosis, ProbeRecord, Target
from onnxbisect.finished import phrase
from onnxbisect.language import _
from onnxbisect.report import words
from onnxbisect.report.contents import probe_name
from onnxbisect.report.text import clean, clip, duration, plural
from onnxbisect.session import AS_PART, Ending
from onnxbisect.unitset import members, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Note:
    """A sentence that the user should read."""

    sentence: str

    def __str__(self) -> str:
        return clean(self.sentence)


@dataclass(frozen=True, kw_only=True)
class SearchStarted:
    """The model was read and has so many units; compiles follow."""

    target: Target
    units: int

    def __str__(self) -> str:
        return f"asking {clean(f'{self.target.tool} {self.target.version}')} about {plural(self.units, 'unit')}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A culprit as it is known now; later probes may rule it out. `ops` are in topological order."""

    ops: tuple[str, ...]
    occurrences: int
    certainty: Certainty

    def __str__(self) -> str:
        ops = " → ".join(clip(op, 40) for op in self.ops[:4])
        more = f" … ({plural(len(self.ops), 'unit')})" if len(self.ops) > 4 else ""
        times = f", {plural(self.occurrences, 'place')}" if self.occurrences > 1 else ""
        return (
            ops + more + times + ("" if self.certainty is Certainty.CONFIRMED else f" ({words.named(self.certainty)})")
        )


@dataclass(frozen=True, kw_only=True)
class PlanMade:
    """The next probes were planned. `expected_calls` estimates the compiler calls of the whole search."""

    calls: int
    expected_calls: float
    found: tuple[Found, ...]

    def __str__(self) -> str:
        found = f", found {'; '.join(map(str, self.found))}" if self.found else ""
        return f"{plural(self.calls, 'call')} of about {max(self.calls, round(self.expected_calls))}{found}"


@dataclass(frozen=True, kw_only=True)
class ProbeStarted:
    """A compile of so many units begins. `probe` is its name in the report."""

    probe: str
    why: str
    units: int

    def __str__(self) -> str:
        return _("asking {what} ({units})", what=clean(phrase(self.why)), units=plural(self.units, "unit"))


@dataclass(frozen=True, kw_only=True)
class ProbeAnswered:
    """A probe has a verdict. `cached`: it was known before, and no compiler was called."""

    probe: str
    why: str
    units: int
    attempt: int
    verdict: Verdict
    cached: bool

    def __str__(self) -> str:
        verdict = self.verdict
        kind = f" ({verdict.kind})" if verdict.kind is not None else ""
        again = _(", asked again ({number})", number=self.attempt + 1) if self.attempt and self.why != AS_PART else ""
        took = _("known before") if self.cached else duration(verdict.seconds)
        message = f": {clip(verdict.message, 120)}" if verdict.message and not verdict.passed else ""
        asked = f"{clean(phrase(self.why))} ({plural(self.units, 'unit')}{again}, {took})"
        return f"{words.named(verdict.status)}{kind}: {asked}{message}"


@dataclass(frozen=True, kw_only=True)
class SearchEnded:
    """The search has ended; no more compiles follow."""

    ending: Ending

    def __str__(self) -> str:
        return f"the search is over: {self.ending}"


Event = Note | SearchStarted | PlanMade | ProbeStarted | ProbeAnswered | SearchEnded

#: Called in the thread that called `diagnose`. An exception that it raises ends the search and leaves `diagnose`.
Progress = Callable[[Event], None]


def plan_made(universe: Universe, diagnosis: Diagnosis, calls: int, expected: float) -> PlanMade:
    """The event after a plan was made: `calls` were made so far, `expected` more are estimated."""
    found = tuple(
        Found(
            ops=tuple(universe.op[unit] for unit in members(culprit.units)),
            occurrences=len(culprit.occurrences),
            certainty=culprit.certainty,
        )
        for culprit in diagnosis.culprits
    )
    return PlanMade(calls=calls, expected_calls=calls + expected, found=found)


def probe_started(ask: Ask) -> ProbeStarted:
    """The event for a probe that is about to be compiled."""
    return ProbeStarted(probe=probe_name(ask.units, ask.attempt), why=ask.why, units=size(ask.units))


def probe_answered(record: ProbeRecord) -> ProbeAnswered:
    """The event for a recorded verdict."""
    return ProbeAnswered(
        probe=probe_name(record.units, record.attempt),
        why=record.why,
        units=size(record.units),
        attempt=record.attempt,
        verdict=record.verdict,
        cached=record.cached,
    )
