"""How a search is carried on: from all that is known to the questions to ask next, or to the reason why it is over.

`next_step` is a pure function of values, so its caller does not matter: `onnx_bisect` compiles in threads of the
user's process, the service has a queue and workers. Both call it again whenever an answer has come, and keep answers
where they please.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from onnxbisect.answer import Ask
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.job import ProbeRecord
from onnxbisect.search.plan import Plan, Verdicts
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

#: Why a culprit is asked about whose own file no compiler was seen to fail on.
OWN_FILE = "a culprit, from its own file"

#: Units, and which attempt at them it is.
Question = tuple[UnitSet, int]

#: SHA-256 of the files that pieces of the model would be written to; empty for a piece that cannot be cut. A piece that
#: is left out is not asked about.
Digests = Callable[[Sequence[UnitSet]], Mapping[UnitSet, str]]


class Planner(Protocol):
    """`onnxbisect.search.plan`."""

    def __call__(self, universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        """The questions worth asking now, best first, at least `width` of them where there are as many."""


class Ending(StrEnum):
    """Why a search is over."""

    #: Nothing is left to ask.
    FINISHED = "finished"
    #: The budget of compiler calls is spent.
    CALLS = "calls"
    #: The budget of seconds is spent.
    SECONDS = "seconds"
    #: The user has cancelled it.
    CANCELLED = "cancelled"
    #: A changed file compiles, so that the file as it is was not searched.
    COMPILES_AFTER = "compiles_after"


@dataclass(frozen=True, kw_only=True)
class Known:
    """Where a search stands. `in_flight` are the questions that compilers work on. `calls_left` are those that the
    budget allows beside them, None where it sets no bound.
    """

    records: Sequence[ProbeRecord]
    in_flight: frozenset[Question] = frozenset()
    calls_left: int | None = None
    out_of_time: bool = False

    @property
    def verdicts(self) -> dict[UnitSet, list[Verdict]]:
        """Of each probe in the order of its attempts, whatever order the answers came in."""
        found: dict[UnitSet, list[Verdict]] = {}
        for record in sorted(self.records, key=lambda record: record.attempt):
            found.setdefault(record.units, []).append(record.verdict)
        return found

    @property
    def spent(self) -> bool:
        """Whether the budget allows no further question."""
        return self.out_of_time or (self.calls_left is not None and self.calls_left <= 0)

    def affordable(self, asks: Sequence[Ask]) -> list[Ask]:
        """Those in flight, and as many others as the budget allows; it is spent on speculation last."""
        if self.calls_left is None and not self.out_of_time:
            return list(asks)
        room = 0 if self.spent or self.calls_left is None else self.calls_left
        new = [ask for ask in asks if (ask.units, ask.attempt) not in self.in_flight]
        unaffordable = sorted(new, key=lambda ask: ask.speculative)[room:]
        return [ask for ask in asks if ask not in unaffordable]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What follows from `Known`.

    `wanted` are the questions worth asking, best first, and `asks` those of them that the budget allows. `ending` is
    None while the search goes on. When it is over, questions that are still in flight were only speculation.
    """

    plan: Plan
    wanted: tuple[Ask, ...]
    asks: tuple[Ask, ...]
    ending: Ending | None


def next_step(
    universe: Universe, known: Known, planner: Planner, *, width: int = 1, digests: Digests | None = None
) -> Step:
    """What to ask now, for `width` compilers at a time.

    Given `digests`, a search ends only when every culprit's own file was compiled, so that the file can be handed out.
    """
    plan = planner(universe, known.verdicts, width=width)
    wanted = list(plan.asks)
    if not wanted and digests is not None:
        wanted = _own_files(plan.diagnosis, known.records, digests)
    asks = known.affordable(wanted)
    return Step(plan=plan, wanted=tuple(wanted), asks=tuple(asks), ending=_ending(known, wanted, asks))


def of_the_whole(step: Step, universe: Universe) -> Step:
    """The step of a search that asks about the model as a whole, with which any search begins, and nothing else."""
    asks = tuple(ask for ask in step.asks if ask.units == universe.everything and not ask.attempt)
    return replace(step, wanted=asks, asks=asks, ending=None if asks else Ending.FINISHED)


def _ending(known: Known, wanted: Sequence[Ask], asks: Sequence[Ask]) -> Ending | None:
    if asks or (known.spent and known.in_flight):  # the budget has paid for what is in flight
        return None
    if not wanted:
        return Ending.FINISHED
    return Ending.SECONDS if known.out_of_time else Ending.CALLS


def _own_files(diagnosis: Diagnosis, records: Sequence[ProbeRecord], digests: Digests) -> list[Ask]:
    """Compiles of the culprits' own files where none of them was seen to fail, each once.

    An answer that was taken over may be about another place of equal structure, whose file has other bytes; that of a
    compile of this search is about the file itself.
    """
    own = list(dict.fromkeys(culprit.evidence.own for culprit in diagnosis.culprits))
    latest = {record.units: record for record in sorted(records, key=lambda record: record.attempt)}
    failed = {units: latest[units] for units in own if units in latest and latest[units].verdict.failed}
    seen = {units for units, record in failed.items() if record.file_sha256 and not record.cached}
    taken_over = [units for units, record in failed.items() if record.cached]
    skipped: set[UnitSet] = set()
    if taken_over:
        found = digests(taken_over)
        seen |= {units for units, digest in found.items() if failed[units].file_sha256 == digest}
        skipped = set(taken_over) - found.keys()
    asked = {record.units for record in records if record.why == OWN_FILE}
    return [
        Ask(units=units, attempt=sum(record.units == units for record in records), why=OWN_FILE)
        for units in own
        if units not in seen | skipped | asked
    ]
