"""The search against a compiler that answers at once, with the calls and rounds that a real one would cost."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum

from generate import Generated
from onnxbisect.diagnosis import CertificateStatus, Diagnosis
from onnxbisect.search import plan
from onnxbisect.search.plan import Ask
from onnxbisect.unitset import UnitSet, lowest
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict

Compile = Callable[[UnitSet], Verdict]
Key = Callable[[UnitSet], Hashable]

#: More calls than any search here needs: one that asks more does not end.
_MOST_CALLS = 20_000


class Log(StrEnum):
    """What a compiler's log admits of a failure."""

    OPAQUE = "opaque"
    #: The op and node of the first offender, as pulsar2 does.
    FIRST = "first op"
    #: Only the node of the first offender, in words that are the same for any op.
    FIRST_NODE = "first node"
    #: Those of every offender, as TPU-MLIR does.
    ALL = "all ops"


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a search cost. A round is a set of calls that go out together; `engine_seconds` are the planner's."""

    calls: int
    rounds: int
    engine_seconds: float
    diagnosis: Diagnosis

    @property
    def found(self) -> frozenset[UnitSet]:
        """Every occurrence of every culprit."""
        return frozenset(units for culprit in self.diagnosis.culprits for units in culprit.occurrences)

    @property
    def proven(self) -> bool:
        """Whether the certificate says that nothing else is wrong."""
        return self.diagnosis.certificate.status is CertificateStatus.PROVEN


def search(universe: Universe, compiler: Compile, workers: int = 1, key: Key = lambda units: units) -> Tally:
    """Turn the crank with workers that all take equally long, so that rounds are the time a user waits.

    Speculative questions go to workers that would idle. Probes of one `key` are one call, as in the verdict base.
    """
    verdicts: dict[UnitSet, list[Verdict]] = {}
    answers: dict[tuple[Hashable, int], Verdict] = {}
    rounds, seconds = 0, 0.0
    while True:
        began = time.perf_counter()
        step = plan(universe, verdicts, workers)
        seconds += time.perf_counter() - began
        if not step.asks:
            return Tally(calls=len(answers), rounds=rounds, engine_seconds=seconds, diagnosis=step.diagnosis)
        assert len(answers) < _MOST_CALLS, "the search does not end"
        known = [ask for ask in step.asks if (key(ask.units), ask.attempt) in answers]
        if not known:
            rounds += 1
            known = _take(step.asks, workers, key)
            for ask in known:
                question = key(ask.units), ask.attempt
                if question not in answers:
                    answers[question] = compiler(ask.units)
        for ask in known:
            verdicts.setdefault(ask.units, []).append(answers[key(ask.units), ask.attempt])


def _take(asks: tuple[Ask, ...], workers: int, key: Key) -> list[Ask]:
    """The questions of one round: best first, speculative ones last, one worker for all of the same key."""
    taken: list[Ask] = []
    questions: set[tuple[Hashable, int]] = set()
    for ask in sorted(asks, key=lambda ask: ask.speculative):
        question = key(ask.units), ask.attempt
        if question in questions or len(questions) < workers:
            questions.add(question)
            taken.append(ask)
    return taken


def compiler_of(generated: Generated, log: Log) -> Compile:
    """The simulated compiler of a generated graph."""
    universe = generated.universe

    def compiled(units: UnitSet) -> Verdict:
        if not generated.refused(units):
            return Verdict(status=Status.PASS)
        if log is Log.OPAQUE:
            return Verdict(status=Status.FAIL, kind=Kind.ERROR)
        offenders = generated.offenders(units)
        named = [lowest(offender) for offender in offenders[: None if log is Log.ALL else 1]]
        ops = () if log is Log.FIRST_NODE else tuple(dict.fromkeys(universe.op[unit] for unit in named))
        hints = Hints(ops=ops, nodes=tuple(name for unit in named for name in universe.names[unit]))
        message = " ".join(("unsupported:", *ops))
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, hints=hints, fingerprint=message, message=message)

    return compiled
