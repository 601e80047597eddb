"""The search against a compiler that answers at once, with the calls and rounds that a real one would cost."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from generate import Generated
from onnxbisect.answer import Ask
from onnxbisect.diagnosis import CertificateStatus, Diagnosis
from onnxbisect.search import plan
from onnxbisect.unitset import UnitSet, lowest, members, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict

Compile = Callable[[UnitSet], Verdict]
Key = Callable[[UnitSet], Hashable]

#: More calls and seconds than any search here needs: one that takes more does not end.
_MOST_CALLS = 2_000
_MOST_SECONDS = 60.0

#: Larger probes are told apart by their units: in a large part of a model hardly anything is equal.
_MOST_ALIKE = 64


class Log(StrEnum):
    """What a compiler's log admits of a failure."""

    OPAQUE = "opaque"
    #: As opaque; the compiler dies by a signal.
    CRASH = "crash"
    #: The op and node of the first offender, as pulsar2 does.
    FIRST = "first op"
    #: Only the node of the first offender, in words that are the same for any op.
    FIRST_NODE = "first node"
    #: Those of every offender, as TPU-MLIR does.
    ALL = "all ops"


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a search cost. A round is a set of calls that go out together; `engine_seconds` are the planner's.

    `compiler_seconds` are those that a real compiler would take for all calls one after the other. `ended` is false
    where the search was ended by force.
    """

    calls: int
    rounds: int
    engine_seconds: float
    compiler_seconds: float
    diagnosis: Diagnosis
    ended: bool = True

    @property
    def found(self) -> frozenset[UnitSet]:
        """Every occurrence of every culprit."""
        return frozenset(units for culprit in self.diagnosis.culprits for units in culprit.occurrences)

    @property
    def proven(self) -> bool:
        """Whether the certificate says that nothing else is wrong."""
        return self.diagnosis.certificate.status is CertificateStatus.PROVEN


def compiler_seconds(units: UnitSet) -> float:
    """Time of one call of a vendor's compiler: a line through 4 s for 3 units and 25 s for 500."""
    return 3.9 + 0.042 * size(units)


def structure(universe: Universe) -> Key:
    """What the verdict base knows a probe by: equal for isomorphic small probes, by colour refinement."""

    @cache
    def key(units: UnitSet) -> Hashable:
        if size(units) > _MOST_ALIKE:
            return units
        inside = list(members(units))
        after = {unit: list(members(universe.successors[unit] & units)) for unit in inside}
        before = {unit: list(members(universe.predecessors[unit] & units)) for unit in inside}
        colours: dict[int, int] = {unit: universe.solo[unit] for unit in inside}
        while True:
            refined = {
                unit: hash(
                    (
                        colours[unit],
                        tuple(sorted(colours[it] for it in before[unit])),
                        tuple(sorted(colours[it] for it in after[unit])),
                    )
                )
                for unit in inside
            }
            if len(set(refined.values())) == len(set(colours.values())):
                return tuple(sorted(refined.values()))
            colours = refined

    return key


def search(universe: Universe, compiler: Compile, workers: int = 1, key: Key = lambda units: units) -> Tally:
    """Turn the crank with workers that all take equally long, so that rounds are the time a user waits.

    Speculative questions go to workers that would idle. Probes of one `key` are one call, as in the verdict base.
    """
    verdicts: dict[UnitSet, list[Verdict]] = {}
    answers: dict[tuple[Hashable, int], Verdict] = {}
    rounds, seconds, compiling = 0, 0.0, 0.0
    while True:
        began = time.perf_counter()
        step = plan(universe, verdicts, workers)
        seconds += time.perf_counter() - began
        endless = len(answers) > _MOST_CALLS or seconds > _MOST_SECONDS
        if not step.asks or endless:
            return Tally(
                calls=len(answers),
                rounds=rounds,
                engine_seconds=seconds,
                compiler_seconds=compiling,
                diagnosis=step.diagnosis,
                ended=not endless,
            )
        known = [ask for ask in step.asks if (key(ask.units), ask.attempt) in answers]
        if not known:
            rounds += 1
            known = _take(step.asks, workers, key)
            for ask in known:
                question = key(ask.units), ask.attempt
                if question not in answers:
                    answers[question] = compiler(ask.units)
                    compiling += compiler_seconds(ask.units)
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
        if log in (Log.OPAQUE, Log.CRASH):
            return Verdict(status=Status.FAIL, kind=Kind.CRASH if log is Log.CRASH else Kind.ERROR)
        offenders = generated.offenders(units)
        named = [lowest(offender) for offender in offenders[: None if log is Log.ALL else 1]]
        ops = () if log is Log.FIRST_NODE else tuple(dict.fromkeys(universe.op[unit] for unit in named))
        hints = Hints(ops=ops, nodes=tuple(name for unit in named for name in universe.names[unit]))
        message = " ".join(("unsupported:", *ops))
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, hints=hints, fingerprint=message, message=message)

    return compiled
