"""Runs a search on a small model whose truth is known, and holds what it states against that truth."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind, DiagnosedCulprit, Diagnosis
from onnxbisect.search import Ask, next_asks, plan
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from support.engine.rule_worlds import RuleWorld

#: More probes than any search of so small a model needs: one that makes more does not end.
_MOST_PROBES = 1000
#: Larger failing sets need not be found: the search may call them a matter of capacity.
_LARGEST_MISSED = 6


class Log(StrEnum):
    """What a compiler says of a failure."""

    SILENT = "silent"
    FIRST_OFFENDER = "first offender"
    #: The op behind the first offender, in whose inputs it trips.
    CONSUMER = "the op behind it"
    #: Every node of the file, one of which it trips over.
    EVERY_NODE = "every node"
    #: The offender where its variant is even, as a parser does whose later passes crash without a word.
    SOME = "some ops"


@dataclass(kw_only=True)
class Run:
    """One search of a world, with the record that it leaves.

    `calls` are compiler calls: probes of equal structure count once, as verdicts are kept by structure.
    """

    world: RuleWorld
    log: Log = Log.SILENT
    recheck: bool = False
    verdicts: dict[UnitSet, list[Verdict]] = field(default_factory=dict)
    probes: int = 0
    #: The number of each call.
    _called: dict[tuple[object, int], int] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return len(self._called)

    def diagnose(
        self,
        width: int = 1,
        order: random.Random | None = None,
        budget: int | None = None,
        patience: float | None = None,
    ) -> Diagnosis:
        """The diagnosis, or what is known when the budget of calls ends.

        `width` probes are under way at a time. They are answered together, or, with `order`, some of them in any
        order before the next plan is made. Raises RuntimeError where the search does not end, or not in so many
        seconds as `patience` has.
        """
        began = time.process_time()
        under_way: list[Ask] = []
        while True:
            asks = next_asks(self.world.universe, self.verdicts, width, recheck=self.recheck)
            if not asks or (budget is not None and self.calls >= budget):
                return plan(self.world.universe, self.verdicts, recheck=self.recheck).diagnosis
            started = {(ask.units, ask.attempt) for ask in under_way}
            new = [ask for ask in asks if (ask.units, ask.attempt) not in started]
            under_way += new[: width - len(under_way)]
            ended = len(under_way)
            if order is not None:
                order.shuffle(under_way)
                ended = order.randint(1, ended)
            for ask in under_way[:ended]:
                self._answer(ask)
            del under_way[:ended]
            if self.probes > _MOST_PROBES or (patience is not None and time.process_time() - began > patience):
                raise RuntimeError(f"no end after {self.probes} probes of {self.world}")

    def _answer(self, ask: Ask) -> None:
        answers = self.verdicts.setdefault(ask.units, [])
        call = self._called.setdefault((structure(self.world.universe, ask.units), len(answers)), self.calls)
        self.probes += 1
        answers.append(_compile(self.world, self.log, ask.units, len(answers), call))


def _compile(world: RuleWorld, log: Log, units: UnitSet, attempt: int, call: int) -> Verdict:
    if world.unanswered >> units & 1:
        return Verdict(status=Status.UNRESOLVED, kind=Kind.TIMEOUT)
    if call in world.down:
        return Verdict(status=Status.FAIL, kind=Kind.ERROR)
    failed = world.refused(units)
    if world.lies and random.Random(f"{world.seed}/{units}/{attempt}").random() < world.lies:
        failed = world.one_sided or not failed
    if not failed:
        return Verdict(status=Status.PASS)
    offender = _first_offender(world, units, log) if log is not Log.SILENT else None
    if offender is None:
        return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED)
    named = [offender]
    if log is Log.CONSUMER:
        named = list(members(world.universe.successors[offender] & units))[:1] or named
    elif log is Log.EVERY_NODE:
        named = list(members(units))
    op = world.universe.op[named[0]]
    names = tuple(name for unit in named for name in world.universe.names[unit])
    hints = Hints(ops=tuple(dict.fromkeys(world.universe.op[unit] for unit in named)), nodes=names)
    return Verdict(status=Status.FAIL, kind=Kind.UNSUPPORTED, hints=hints, fingerprint=op, message=op)


def _first_offender(world: RuleWorld, units: UnitSet, log: Log) -> int | None:
    """The first unit of a planted pattern, else the first one that the rule refuses there; of those that are named."""
    first_planted = (lowest(planted) for planted in world.planted if is_subset(planted, units))
    refused = (unit for unit in members(units) if world.refusing.get(unit, 0) >> units & 1)
    unnamed = log is Log.SOME
    return next(
        (unit for unit in (*first_planted, *refused) if not (unnamed and world.universe.variant[unit] % 2)), None
    )


def structure(universe: Universe, units: UnitSet) -> object:
    """Equal for isomorphic parts, by four rounds of colour refinement."""
    inside = list(members(units))
    after = {unit: [other for other in inside if universe.successors[unit] >> other & 1] for unit in inside}
    before: dict[int, list[int]] = {unit: [] for unit in inside}
    for unit, consumers in after.items():
        for consumer in consumers:
            before[consumer].append(unit)
    colours = {unit: universe.solo[unit] for unit in inside}
    for _ in range(4 if any(after.values()) else 0):
        colours = {
            unit: hash(
                (
                    colours[unit],
                    tuple(sorted([colours[other] for other in before[unit]])),
                    tuple(sorted([colours[other] for other in after[unit]])),
                )
            )
            for unit in inside
        }
    return tuple(sorted(colours.values()))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Where a diagnosis and its record contradict the truth, or each other.

    False facts are occurrences of culprits, stated as more than a suspicion, that are no minimal robust failing set
    (`families.minimal_robust`): `innocent` share no unit with any, and something that holds them passes;
    `passing` pass by themselves; `wrong_extent` are too much or too little of what is to blame. `missed` are minimal
    robust sets that a certificate calls proven without naming them. `violations` need no truth: the record itself
    holds the contradiction.
    """

    innocent: tuple[UnitSet, ...]
    passing: tuple[UnitSet, ...]
    wrong_extent: tuple[UnitSet, ...]
    missed: tuple[UnitSet, ...]
    violations: tuple[str, ...]

    @property
    def false_facts(self) -> tuple[UnitSet, ...]:
        return self.innocent + self.passing + self.wrong_extent


def judge(run: Run, diagnosis: Diagnosis) -> Judgement:
    """Hold a diagnosis, finished or not, against the truth and the record."""
    world = run.world
    to_blame = 0
    for units in world.truth:
        to_blame |= units
    innocent, passing, wrong_extent = [], [], []
    for units in sorted(_stated(run, diagnosis)):
        if units in world.truth:
            continue
        if not units & to_blame and world.passes_around(units):
            innocent.append(units)
        elif not world.refused(units):
            passing.append(units)
        else:
            wrong_extent.append(units)
    return Judgement(
        innocent=tuple(innocent),
        passing=tuple(passing),
        wrong_extent=tuple(wrong_extent),
        missed=tuple(_missed(world, diagnosis)),
        violations=tuple(_violations(run, diagnosis)),
    )


def _stated(run: Run, diagnosis: Diagnosis) -> set[UnitSet]:
    """The occurrences that the diagnosis gives as facts, and not as inferred; if a compiler lies, as confirmed."""
    return {
        units
        for culprit in diagnosis.culprits
        if _minimal(culprit)
        and culprit.certainty is not Certainty.SUSPECTED
        and (culprit.certainty is Certainty.CONFIRMED or not run.world.lies)
        for units in culprit.occurrences
        if not units & culprit.inferred
    }


def _minimal(culprit: DiagnosedCulprit) -> bool:
    """Whether it claims to be a minimal failing set, and not that there is too much of something."""
    return culprit.kind in (CulpritKind.SINGLE, CulpritKind.INTERACTION)


def _missed(world: RuleWorld, diagnosis: Diagnosis) -> Iterator[UnitSet]:
    if diagnosis.certificate.status is not CertificateStatus.PROVEN:
        return
    for units in world.truth:
        if size(units) > _LARGEST_MISSED or _holds_an_occurrence(units, diagnosis.culprits):
            continue
        too_much = [culprit.units for culprit in diagnosis.culprits if not _minimal(culprit)]
        if not (world.by_quantity >> units & 1 and any(is_subset(units, counted) for counted in too_much)):
            yield units


def _violations(run: Run, diagnosis: Diagnosis) -> Iterator[str]:
    """What the record says and the diagnosis contradicts."""
    answered = {units: _majority(answers) for units, answers in run.verdicts.items()}
    passing = [units for units, status in answered.items() if status is Status.PASS]
    failing = [units for units, status in answered.items() if status is Status.FAIL]
    confirmed = [it for it in diagnosis.culprits if _minimal(it) and it.certainty is Certainty.CONFIRMED]
    for units in passing:
        if _holds_an_occurrence(units, confirmed):
            yield f"{_named(units)} passes and holds a confirmed culprit"
    if diagnosis.certificate.status is not CertificateStatus.PROVEN:
        return
    too_much = 0
    for culprit in diagnosis.culprits:
        if not _minimal(culprit):
            too_much |= culprit.units
    for units in failing:
        if (
            not _holds_an_occurrence(units, diagnosis.culprits)
            and not any(is_subset(units, other) for other in passing)
            and not units & (diagnosis.unresolved | too_much)
        ):
            yield f"{_named(units)} fails and holds no culprit, though the diagnosis is proven"


def _majority(answers: list[Verdict]) -> Status | None:
    fails = sum(answer.failed for answer in answers)
    passes = sum(answer.passed for answer in answers)
    if fails == passes:
        return None
    return Status.FAIL if fails > passes else Status.PASS


def _holds_an_occurrence(units: UnitSet, culprits: list[DiagnosedCulprit] | tuple[DiagnosedCulprit, ...]) -> bool:
    """Of too many units of one op the diagnosis does not list every choice."""
    return any(
        any(is_subset(occurrence, units) for occurrence in culprit.occurrences)
        or (culprit.among and size(culprit.among & units) >= size(culprit.units))
        for culprit in culprits
    )


def _named(units: UnitSet) -> str:
    return str(list(members(units)))
