"""Models of 10 to 240 units for compilers of many kinds, of which no brute force tells all the truth.

What is known of each is what was planted. A fact is false where sampling finds a part that passes and holds it, and a
proof is wrong where something planted is missing or where the model still fails once it is repaired as reported. Of
models of up to twelve units all is known, as in `rule_worlds`.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind, Diagnosis
from onnxbisect.search import next_asks, plan
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict
from support.engine.families import minimal_robust
from support.engine.judging import structure
from support.engine.worlds import universe

Chance = random.Random
#: The answer to a probe: its units, how often it was asked, the number of the call, and whether the rule refuses it.
Answers = Callable[[UnitSet, int, int, bool], Status]

_BRUTE_FORCE = 12
_SAMPLES = 200
_REPAIRS = 12


def honest(units: UnitSet, attempt: int, call: int, failed: bool) -> Status:
    return Status.FAIL if failed else Status.PASS


@dataclass(frozen=True, kw_only=True)
class LargeWorld:
    """`planted` are minimal sets that fail with anything. `all_that_fails` says whether there is nothing else."""

    universe: Universe
    refused: Callable[[UnitSet], bool]
    planted: frozenset[UnitSet] = frozenset()
    all_that_fails: bool = False
    log: Callable[[UnitSet], Hints] = lambda units: Hints()
    kind: Kind = Kind.UNSUPPORTED
    answers: Answers = honest

    def answer(self, units: UnitSet, attempt: int, call: int) -> Verdict:
        """What the compiler says."""
        status = self.answers(units, attempt, call, self.refused(units))
        if status is Status.PASS:
            return Verdict(status=status)
        if status is Status.UNRESOLVED:
            return Verdict(status=status, kind=Kind.TIMEOUT, message="no answer")
        hints = self.log(units)
        words = " ".join(hints.ops)
        return Verdict(status=status, kind=self.kind, hints=hints, fingerprint=words, message=words)

    @cached_property
    def truth(self) -> frozenset[UnitSet] | None:
        """The minimal sets of which every superset fails; None where that is not known."""
        count = len(self.universe)
        if self.all_that_fails:
            return self.planted
        if count > _BRUTE_FORCE:
            return None
        return frozenset(minimal_robust(count, sum(1 << units for units in range(1 << count) if self.refused(units))))

    def passes_around(self, units: UnitSet, chance: Chance) -> bool:
        """Whether sampling finds a part that passes and holds these units."""
        model, everything = self.universe, self.universe.everything
        innocent = everything & ~(union(self.planted) & ~units)
        if any(
            not self.refused(model.ball(units, steps, it | units))
            for steps in range(13)
            for it in (everything, innocent)
        ):
            return True
        near = list(members(model.ball(units, 2) & ~units))
        pools = (near, near, list(members(innocent)), list(members(everything)))
        for number in range(_SAMPLES):
            share = chance.random()
            others = of(unit for unit in pools[number % len(pools)] if chance.random() < share)
            if not self.refused(units | others):
                return True
        return False


def model(chance: Chance, counts: Sequence[int] = (12, 30, 60, 120), shapes: int = 1) -> Universe:
    """A chain with shortcuts, of six or more ops."""
    count = chance.choice(counts)
    ops = max(6, count // 8)
    variants = [*range(ops), *(chance.randrange(ops) for _ in range(count - ops))]
    chance.shuffle(variants)
    numbers: dict[tuple[int, int], int] = {}
    solos = [numbers.setdefault((it, chance.randrange(shapes)), len(numbers)) for it in variants]
    return universe(variants, shortcut_chain(chance, count), solos)


def shortcut_chain(chance: Chance, count: int, shortcuts: float = 0.3, reach: int = 8) -> list[tuple[int, int]]:
    edges = {(unit, unit + 1) for unit in range(count - 1)}
    edges |= {
        (chance.randrange(max(0, unit - reach), unit), unit) for unit in range(2, count) if chance.random() < shortcuts
    }
    return sorted(edges)


def planted(chance: Chance, graph: Universe, singles: int, pairs: int = 0) -> frozenset[UnitSet]:
    """The places of so many refused ops, and of so many refused pairs of other ops, one behind the other."""
    ops = chance.sample(range(len(graph.variant_members)), singles)
    found = {1 << unit for op in ops for unit in members(graph.variant_members[op])}
    left = graph.everything & ~union(found)
    edges = [(unit, after) for unit in members(left) for after in members(graph.successors[unit] & left)]
    for one, other in chance.sample(edges, min(pairs, len(edges))):
        kinds = graph.variant[one], graph.variant[other]
        found |= {of(edge) for edge in edges if kinds == (graph.variant[edge[0]], graph.variant[edge[1]])}
    return frozenset(found)


def monotone(
    chance: Chance,
    counts: Sequence[int] = (12, 30, 60, 120),
    singles: Sequence[int] = (1, 2, 3),
    pairs: Sequence[int] = (0, 0, 1),
) -> LargeWorld:
    """Fails on planted ops and pairs, and on nothing else."""
    graph = model(chance, counts)
    sets = planted(chance, graph, chance.choice(singles), chance.choice(pairs))
    return LargeWorld(
        universe=graph,
        refused=lambda units: any(is_subset(it, units) for it in sets),
        planted=sets,
        all_that_fails=True,
    )


@dataclass(frozen=True, kw_only=True)
class LargeJudgement:
    """`false` are occurrences stated as facts that are no minimal sets that fail; `wrong` is a proof that is none."""

    calls: int
    ended: bool
    proven: bool = False
    false: tuple[UnitSet, ...] = ()
    wrong: bool = False


def search(world: LargeWorld, seed: int, *, recheck: bool, seconds: float, most: int = 1500) -> LargeJudgement:
    """Search a model, where equal files are one call, and judge the diagnosis; planning may take so many seconds."""
    verdicts: dict[UnitSet, list[Verdict]] = {}
    called: set[tuple[object, int]] = set()
    probes = 0
    began = time.process_time()
    while asks := next_asks(world.universe, verdicts, recheck=recheck):
        units = asks[0].units
        answers = verdicts.setdefault(units, [])
        answers.append(world.answer(units, len(answers), len(called)))
        called.add((structure(world.universe, units), len(answers)))
        probes += 1
        if probes > most or time.process_time() - began > seconds:
            return LargeJudgement(calls=len(called), ended=False)
    diagnosis = plan(world.universe, verdicts, recheck=recheck).diagnosis
    proven = diagnosis.certificate.status is CertificateStatus.PROVEN
    chance = Chance(seed)
    return LargeJudgement(
        calls=len(called),
        ended=True,
        proven=proven,
        false=tuple(_false(world, diagnosis, chance)),
        wrong=proven and (_misses_some(world, diagnosis) or _is_not_repaired(world, diagnosis, chance)),
    )


def _false(world: LargeWorld, diagnosis: Diagnosis, chance: Chance) -> Iterator[UnitSet]:
    for culprit in diagnosis.culprits:
        minimal = culprit.kind in (CulpritKind.SINGLE, CulpritKind.INTERACTION)
        if not minimal or culprit.certainty is not Certainty.CONFIRMED:
            continue
        for units in culprit.occurrences:
            if units & culprit.inferred or units in world.planted:
                continue
            if units not in world.truth if world.truth is not None else world.passes_around(units, chance):
                yield units


def _misses_some(world: LargeWorld, diagnosis: Diagnosis) -> bool:
    """Whether something known is named by no culprit; where there is too much of everything, all is."""
    known = world.truth if world.truth is not None else world.planted
    too_large = any(it.kind is CulpritKind.CAPACITY for it in diagnosis.culprits)
    return not too_large and not all(any(it.held_by(units) for it in diagnosis.culprits) for units in known)


def _is_not_repaired(world: LargeWorld, diagnosis: Diagnosis, chance: Chance) -> bool:
    """Whether the model fails although each culprit lacks a unit at all its places, chosen in one of a few ways."""
    counts = [it for it in diagnosis.culprits if it.kind is CulpritKind.COUNT]
    places = [units for it in diagnosis.culprits if it not in counts for units in it.occurrences]
    for _ in range(_REPAIRS):
        out: UnitSet = 0
        for units in chance.sample(places, len(places)):
            if not units & out:
                out |= 1 << chance.choice(list(members(units)))
        for unit in members(out):  # no more than needed, for more may take away what makes others pass
            if all(units & out & ~(1 << unit) for units in places):
                out &= ~(1 << unit)
        for it in counts:
            kept = list(members(it.among & ~out))
            out |= of(kept[size(it.units) - 1 :])
        if world.refused(world.universe.everything & ~out):
            return True
    return False
