"""One step of a search: from all that is known to the next compiles, or to the reason why the search has ended.

`next_step` is a pure function of values, so any caller can use it: `onnx_bisect` compiles in threads of the user's
process, the service with a queue and workers. Both call it again after every verdict and store verdicts where they
like.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from onnxbisect.answer import Ask, Verdicts
from onnxbisect.diagnosis import Diagnosis, ProbeRecord
from onnxbisect.language import english
from onnxbisect.search.planner import Plan
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

#: `Ask.why` for the compile of a culprit's own file.
OWN_FILE = "a culprit, from its own file"
#: `Ask.why` for the compile that tells the form of the user's file from its content.
AS_PART = english("the whole model, written as its parts are")
#: So many parts that pass, and none that fails, suggest that the form of the file is to blame.
_PARTS_THAT_PASS = 2

#: Units and the number of the attempt.
Question = tuple[UnitSet, int]

#: Returns the SHA-256 of the file that each piece would be written to: empty for a piece that cannot be cut. Pieces
#: missing in the result are not compiled.
Digests = Callable[[Sequence[UnitSet]], Mapping[UnitSet, str]]


class Planner(Protocol):
    """The interface of `onnxbisect.search.plan`."""

    def __call__(self, universe: Universe, verdicts: Verdicts, width: int = 1) -> Plan:
        """The useful compiles now, best first: at least `width` of them if there are as many."""


class Ending(StrEnum):
    """Why a search has ended."""

    #: No useful compile is left.
    FINISHED = "finished"
    #: The budget of compiler calls is spent.
    CALLS = "calls"
    #: The budget of seconds is spent.
    SECONDS = "seconds"
    #: The user cancelled the search.
    CANCELLED = "cancelled"
    #: A changed file compiles, so the parts of the original file were not searched.
    COMPILES_AFTER = "compiles_after"
    #: The model compiles once it is written as its parts are, so no part is to blame but the form of the file.
    FORM = "form"


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """The state of a search.

    `in_flight` are the compiles that are running. `calls_left` are those that the budget allows in addition; None if it
    is unlimited.
    """

    records: Sequence[ProbeRecord]
    in_flight: frozenset[Question] = frozenset()
    calls_left: int | None = None
    out_of_time: bool = False

    @property
    def verdicts(self) -> dict[UnitSet, list[Verdict]]:
        """The verdicts on each probe in the order of attempts, independent of the order of arrival.

        Once the whole model was compiled in the form of its parts and failed, that is its verdict.
        """
        found: dict[UnitSet, list[Verdict]] = {}
        for record in sorted(self.records, key=lambda record: record.attempt):
            answers = found.setdefault(record.units, [])
            answers.append(record.verdict)
            if record.why == AS_PART:
                told = record.verdict if record.verdict.failed else answers[0]
                answers[:] = [told] * len(answers)
        return found

    @property
    def spent(self) -> bool:
        """Whether the budget allows no further compile."""
        return self.out_of_time or (self.calls_left is not None and self.calls_left <= 0)

    def affordable(self, asks: Sequence[Ask]) -> list[Ask]:
        """The compiles in flight and as many others as the budget allows, speculative ones last."""
        if self.calls_left is None and not self.out_of_time:
            return list(asks)
        room = 0 if self.spent or self.calls_left is None else self.calls_left
        new = [ask for ask in asks if (ask.units, ask.attempt) not in self.in_flight]
        unaffordable = sorted(new, key=lambda ask: ask.speculative)[room:]
        return [ask for ask in asks if ask not in unaffordable]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What follows from `SearchRecord`.

    `wanted` are the useful compiles, best first; `asks` are those that the budget allows. `ending` is None while the
    search goes on. After its end, compiles that are still in flight were only speculative.
    """

    plan: Plan
    wanted: tuple[Ask, ...]
    asks: tuple[Ask, ...]
    ending: Ending | None


def next_step(
    universe: Universe,
    known: SearchRecord,
    planner: Planner,
    *,
    width: int = 1,
    digests: Digests | None = None,
    forms_differ: bool = False,
) -> Step:
    """The next step, for `width` compiles at a time.

    With `digests`, a search ends only when every culprit's own file was compiled, so that the file can be given to
    others. `forms_differ`: the whole model, written as its parts are, is another file than the user's. Where no part
    fails as the user's file does, that other file is compiled, too: if it passes, the search is over.
    """
    plan = planner(universe, known.verdicts, width=width)
    if any(record.why == AS_PART and record.verdict.passed for record in known.records):
        return Step(plan=plan, wanted=(), asks=(), ending=Ending.FORM)
    wanted = list(plan.asks)
    if forms_differ and _form_is_in_doubt(universe, known.records, ending=not wanted):
        attempt = sum(record.units == universe.everything for record in known.records)
        wanted.insert(0, Ask(units=universe.everything, attempt=attempt, why=AS_PART))
    if not wanted and digests is not None:
        wanted = _own_files(plan.diagnosis, known.records, digests)
    asks = known.affordable(wanted)
    ending = None
    if not asks and not (known.spent and known.in_flight):  # the budget has paid for what is in flight
        spent = Ending.SECONDS if known.out_of_time else Ending.CALLS
        ending = spent if wanted else Ending.FINISHED
    return Step(plan=plan, wanted=tuple(wanted), asks=tuple(asks), ending=ending)


def only_whole_model(step: Step, universe: Universe) -> Step:
    """The first step of a search, which compiles the model as a whole, and nothing else."""
    asks = tuple(ask for ask in step.asks if ask.units == universe.everything and not ask.attempt)
    return replace(step, wanted=asks, asks=asks, ending=None if asks else Ending.FINISHED)


def _form_is_in_doubt(universe: Universe, records: Sequence[ProbeRecord], *, ending: bool) -> bool:
    """Whether the user's file may fail for its form alone, which only the whole model in another form can tell.

    A part that fails as the file does shows that it is not the form. Until one does, the question is worth a call once
    parts pass and none fails, or when the search is `ending`.
    """
    whole = [record for record in records if record.units == universe.everything]
    if not any(record.verdict.failed for record in whole) or any(record.why == AS_PART for record in whole):
        return False
    parts = [record.verdict for record in records if record.units != universe.everything]
    failing = {(verdict.kind, verdict.fingerprint) for verdict in parts if verdict.failed}
    if any((it.verdict.kind, it.verdict.fingerprint) in failing for it in whole):
        return False
    return ending or (not failing and sum(verdict.passed for verdict in parts) >= _PARTS_THAT_PASS)


def _own_files(diagnosis: Diagnosis, records: Sequence[ProbeRecord], digests: Digests) -> list[Ask]:
    """One compile of each culprit's own file, unless that file was already seen to fail.

    A reused verdict may be about an equal piece elsewhere, whose file has other bytes. Only a verdict of this search is
    about the file itself.
    """
    own = list(dict.fromkeys(culprit.evidence.own for culprit in diagnosis.culprits))
    in_order = sorted(records, key=lambda record: record.attempt)
    latest = {record.units: record for record in in_order if record.why != AS_PART}
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
