"""Universes without ONNX and compilers with a known rule, to hold the search against brute force."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from onnxbisect.diagnosis import Certainty, CertificateStatus, CulpritKind
from onnxbisect.search import Plan, next_asks, plan
from onnxbisect.unitset import UnitSet, is_subset, members, of
from onnxbisect.universe import Universe
from onnxbisect.verdict import Hints, Kind, Status, Verdict

#: Whether a compiler fails on a set of units.
Rule = Callable[[UnitSet], bool]
#: What its log names when it does.
Log = Callable[[UnitSet], Hints]


def silent(_: UnitSet) -> Hints:
    return Hints()


def universe(variants: Sequence[int], edges: Iterable[tuple[int, int]], solos: Sequence[int] | None = None) -> Universe:
    """Units of these variants with this dataflow; op names are V0, V1, …"""
    after: list[list[int]] = [[] for _ in variants]
    for producer, consumer in edges:
        after[producer].append(consumer)
    return Universe(
        variant=tuple(variants),
        solo=tuple(solos if solos is not None else variants),
        op=tuple(f"V{variant}" for variant in variants),
        names=tuple((f"n{unit}",) for unit in range(len(variants))),
        tensors=tuple((f"t{unit}",) for unit in range(len(variants))),
        successors=tuple(of(consumers) for consumers in after),
    )


def chain(variants: Sequence[int], solos: Sequence[int] | None = None) -> Universe:
    return universe(variants, [(unit, unit + 1) for unit in range(len(variants) - 1)], solos)


def monotone(minimal: Iterable[UnitSet]) -> Rule:
    """Fails on every superset of one of these sets."""
    sets = list(minimal)
    return lambda units: any(is_subset(one, units) for one in sets)


def minimal_failing_sets(count: int, rule: Rule, largest: int = 3) -> set[UnitSet]:
    """Brute force: the failing sets up to a size of which no failing set is a part."""
    found: set[UnitSet] = set()
    for how_many in range(1, largest + 1):
        for chosen in combinations(range(count), how_many):
            units = of(chosen)
            if not any(is_subset(one, units) for one in found) and rule(units):
                found.add(units)
    return found


@dataclass
class World:
    """A compiler with a rule, a way of logging, and perhaps a lie now and then."""

    universe: Universe
    rule: Rule
    log: Log = silent
    fingerprints: bool = False
    flaky: float = 0.0
    seed: int = 0
    #: In which way it fails.
    kind: Kind = Kind.UNSUPPORTED
    #: Answer probes of equal structure without a call, as a driver does that keeps verdicts by structure.
    alike: bool = False
    calls: int = 0
    rounds: int = 0
    verdicts: dict[UnitSet, list[Verdict]] = field(default_factory=dict)

    def compile(self, units: UnitSet) -> Verdict:
        self.calls += 1
        failed = self.rule(units)
        if (
            self.flaky
            and random.Random(f"{self.seed}/{units}/{len(self.verdicts.get(units, ()))}").random() < self.flaky
        ):
            failed = not failed
        if not failed:
            return Verdict(status=Status.PASS)
        hints = self.log(units)
        words = " ".join(hints.ops) if self.fingerprints else ""
        return Verdict(status=Status.FAIL, kind=self.kind, hints=hints, fingerprint=words, message=words)

    def diagnose(self, width: int = 1, most: int = 5000, *, recheck: bool = False, brief: bool = False) -> Plan:
        """Turn the crank: all questions that come together go out together."""
        while asks := next_asks(self.universe, self.verdicts, width, recheck=recheck, brief=brief):
            self.rounds += 1
            for ask in asks[: max(width, 1)]:
                answer = self._known(ask.units) if self.alike else None
                self.verdicts.setdefault(ask.units, []).append(answer or self.compile(ask.units))
            assert self.calls < most, "the search does not end"
        return plan(self.universe, self.verdicts, width, recheck=recheck, brief=brief)

    def _known(self, units: UnitSet) -> Verdict | None:
        structure = self._structure(units)
        return next((kept[0] for asked, kept in self.verdicts.items() if self._structure(asked) == structure), None)

    def _structure(self, units: UnitSet) -> object:
        """Equal for isomorphic sets of small size; larger ones are told apart by their units."""
        if units.bit_count() > 8:
            return units
        inside = list(members(units))
        solo = self.universe.solo
        edges = [(solo[a], solo[b]) for a in inside for b in members(self.universe.successors[a] & units)]
        return tuple(sorted(solo[unit] for unit in inside)), tuple(sorted(edges))


def all_found(step: Plan) -> set[UnitSet]:
    """Every occurrence of every culprit."""
    return {units for culprit in step.diagnosis.culprits for units in culprit.occurrences}


def demand_all(step: Plan, truth: set[UnitSet]) -> None:
    """All is found and proven; nothing false is stated where a limit of what is taken is suspected instead.

    A few interactions of a small model may fit such a limit as well, which more calls than are worth it tell apart.
    """
    culprits = step.diagnosis.culprits
    if any(it.kind is CulpritKind.CAPACITY for it in culprits):
        assert step.diagnosis.certificate.status is CertificateStatus.BOUNDED
        facts = [it for it in culprits if it.certainty is not Certainty.SUSPECTED]
        assert {units for it in facts for units in it.occurrences if not units & it.inferred} <= truth
        return
    assert all_found(step) == truth
    assert step.diagnosis.certificate.status is CertificateStatus.PROVEN


def first_offender(universe: Universe, bad: Iterable[int]) -> Log:
    """Names the first unit of a bad variant, as pulsar2 does."""
    variants = set(bad)

    def log(units: UnitSet) -> Hints:
        for unit in members(units):
            if universe.variant[unit] in variants:
                return Hints(ops=(universe.op[unit],), nodes=(f"n{unit}",))
        return Hints()

    return log


def tensor_table(universe: Universe, culprits: Iterable[UnitSet], one_in: int = 1) -> Log:
    """Compares a probe's tensors with reference values, and lists which differ and which do not, as TPU-MLIR does.

    The last unit of a culprit computes wrong numbers, and so does all that is computed from them in the probe. Of
    several tensors one is compared, and the probe's last one.
    """
    sets = list(culprits)

    def log(units: UnitSet) -> Hints:
        wrong = of(max(members(one)) for one in sets if is_subset(one, units))
        inside = list(members(units))
        for unit in inside:
            if universe.predecessors[unit] & units & wrong:
                wrong |= 1 << unit
        compared = {*inside[::one_in], inside[-1]}
        return Hints(
            tensors=tuple(f"t{unit}" for unit in sorted(compared) if wrong >> unit & 1),
            right=tuple(f"t{unit}" for unit in sorted(compared) if not wrong >> unit & 1),
        )

    return log
