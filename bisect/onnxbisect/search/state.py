"""What one replay has established so far: limits of what the compiler takes at a time, possible culprits and which of
them are alike, and failures that cutting causes. The search and the locator write it, the conclusion reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from onnxbisect.diagnosis import ContextUnits
from onnxbisect.language import english
from onnxbisect.unitset import UnitSet, lowest, members, of, size, union
from onnxbisect.universe import Universe, remembered

#: In a model of fewer units most pairs may fail for what they are. No limit is said of it: all that fails is listed.
FEWEST_UNITS = 7

#: The units of one place of a suspect, in the order of their roles.
Occurrence = tuple[int, ...]


class Measure(StrEnum):
    """What of a probe may be limited."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    BOTH = "inputs and outputs"
    PIECES = "unconnected pieces"
    LIVE = "live tensors"
    WEIGHTS = "bytes of weights"


@dataclass(frozen=True)
class Gauge:
    """What of a probe is counted: `measure` of its units but those in `aside`, as ops that a compiler leaves to the
    host.
    """

    measure: Measure
    aside: UnitSet = 0

    def amount(self, universe: Universe, units: UnitSet) -> int:
        """How much of it a probe has."""
        return amount(universe, self.measure, units & ~self.aside)


@dataclass(frozen=True)
class CutLimit:
    """A compiler that takes at most so many (`most`) of what `gauge` counts.

    `refused` is the least that failed for it; what lies between was not asked.
    """

    gauge: Gauge
    most: int
    refused: int

    def exceeded(self, universe: Universe, units: UnitSet) -> bool:
        """Whether a probe has more."""
        return self.gauge.amount(universe, units) > self.most

    def words(self, universe: Universe) -> str:
        """What the compiler takes."""
        most = str(self.most) if self.refused == self.most + 1 else f"{self.most} to {self.refused - 1}"
        if self.gauge.aside:
            ops = ", ".join(sorted({universe.op[unit] for unit in members(self.gauge.aside)}))
            return english("at most {most} unconnected pieces of ops other than {ops}", most=most, ops=ops)
        match self.gauge.measure:
            case Measure.INPUTS:
                return english("at most {most} inputs", most=most)
            case Measure.OUTPUTS:
                return english("at most {most} outputs", most=most)
            case Measure.BOTH:
                return english("at most {most} inputs and outputs", most=most)
            case Measure.PIECES:
                return english("at most {most} unconnected pieces", most=most)
            case Measure.LIVE:
                return english("at most {most} tensors that live together", most=most)
            case Measure.WEIGHTS:
                most, refused = (f"{it / 1e6:.4g}" for it in (self.most, self.refused))
                return english("at most {most} to {refused} MB of weights", most=most, refused=refused)


def sentence(universe: Universe, limits: Sequence[CutLimit]) -> str:
    """What a compiler takes whose answers fit each of these limits."""
    return english("the compiler takes {bound} at a time", bound=" or ".join(it.words(universe) for it in limits))


@remembered(4096)
def amount(universe: Universe, measure: Measure, units: UnitSet) -> int:
    """How much of it a probe has.

    A unit counts as one output if anything outside reads it or nothing does, and as one input of the model if it reads
    no unit: the search knows units, and not their tensors.
    """
    match measure:
        case Measure.INPUTS:
            return _inputs(universe, units)
        case Measure.OUTPUTS:
            return _outputs(universe, units)
        case Measure.BOTH:
            return _inputs(universe, units) + _outputs(universe, units)
        case Measure.PIECES:
            return len(universe.components(units))
        case Measure.LIVE:
            order = list(members(units))
            read_last: dict[int, int] = {unit: unit for unit in order}
            for unit in order:
                for producer in members(universe.predecessors[unit]):
                    read_last[producer] = unit
            changes: dict[int, int] = {}
            for producer, last in read_last.items():
                changes[producer] = changes.get(producer, 0) + 1
                changes[last + 1] = changes.get(last + 1, 0) - 1
            live = most = 0
            for place in sorted(changes):
                live += changes[place]
                most = max(most, live)
            return most
        case Measure.WEIGHTS:
            return sum(universe.weights[unit] for unit in members(units)) if universe.weights else 0


def _inputs(universe: Universe, units: UnitSet) -> int:
    read = union(universe.predecessors[unit] for unit in members(units)) & ~units
    return size(read) + sum(not universe.predecessors[unit] for unit in members(units))


def _outputs(universe: Universe, units: UnitSet) -> int:
    after = (universe.successors[unit] for unit in members(units))
    return sum(not readers or bool(readers & ~units) for readers in after)


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A minimal failing set, with the places where the same structure occurs.

    `units` is the occurrence that was compiled, and `fails` the probe that failed (for a single unit, perhaps of an
    identical one). `occurrences` are aligned: the same position has the same role. `context` and `blame` are set once
    it has failed in context.

    `capacity`: the set is not minimal but too large, and no small part fails. `pool`: the target accepts one unit of
    `pool` fewer than `units` has, whichever they are. `contested`: one unit that fails alone and inside the model, and
    passes in a part of the model, while no few units make the difference. `like`: places of others that
    differ in constants only and failed by themselves in places like its own, where it was asked together with more.
    """

    units: UnitSet
    fails: UnitSet
    occurrences: tuple[Occurrence, ...]
    capacity: bool = False
    contested: bool = False
    pool: UnitSet = 0
    context: UnitSet | None = None
    blame: UnitSet | None = None
    verified: bool = False
    like: UnitSet = 0

    @property
    def everywhere(self) -> UnitSet:
        """The units of all occurrences."""
        return self.pool or of(unit for occurrence in self.occurrences for unit in occurrence)

    def alike(self, universe: Universe, units: UnitSet) -> UnitSet:
        """The units of all occurrences whose neighbourhood is that of one of these units."""
        around, solo = universe.neighbourhoods, universe.solo
        kinds = {(around[unit], solo[unit]) for unit in members(units)}
        return of(unit for unit in members(self.everywhere) if (around[unit], solo[unit]) in kinds)

    def say(self, universe: Universe) -> str:
        """Its ops, for progress lines."""
        ops = [universe.op[unit] for unit in members(self.units)]
        return " + ".join(ops) if len(ops) <= 4 else f"{len(ops)} units"

    @property
    def single(self) -> bool:
        """Whether one unit is to blame alone."""
        return size(self.units) == 1 and not self.capacity

    @property
    def interaction(self) -> bool:
        """Whether several units are to blame together, each of them necessary."""
        return size(self.units) > 1 and not self.capacity and not self.pool

    @property
    def allowed(self) -> int:
        """How many units of `pool` the target accepts."""
        return size(self.units) - 1

    def held_by(self, probe: UnitSet) -> bool:
        """Whether a probe contains this culprit at any of its places."""
        if self.pool:
            return size(self.pool & probe) > self.allowed
        return any(not place & ~probe for place in self._places)

    @cached_property
    def _places(self) -> tuple[UnitSet, ...]:
        return tuple(map(of, self.occurrences))


#: Fewest suspects that differ in constants only of which some are asked together: in their context without each other,
#: those that are asked by themselves take up to ten calls more, to be seen next to each other.
_FEWEST_ALIKE = 12
#: How many are asked by themselves: the first and the last.
_ASKED = 2


@dataclass(frozen=True)
class Kin:
    """Suspects that differ in constants only, in places that look alike: those asked by themselves, and the others.

    A compiler may refuse an op by a constant's value, so each was asked alone; in their context the others are asked
    together.
    """

    asked: tuple[Suspect, ...]
    others: tuple[Suspect, ...]

    @property
    def together(self) -> Suspect:
        """The others as one."""
        places = tuple(place for suspect in self.others for place in suspect.occurrences)
        return replace(self.others[0], units=union(suspect.units for suspect in self.others), occurrences=places)

    @property
    def examples(self) -> UnitSet:
        """The places of those that are asked by themselves."""
        return union(suspect.everywhere for suspect in self.asked)


def kin_among(universe: Universe, suspects: Sequence[Suspect], doubted: Iterable[int]) -> list[Kin]:
    """The suspects that have so many like them, without those known already.

    None of an op of which a variant in `doubted` passed in some place: there each place is a question of its own.
    """
    if not universe.valueless:
        return []
    ops = {universe.op[lowest(universe.variant_members[variant])] for variant in doubted}
    groups: dict[tuple[int, frozenset[int]], list[Suspect]] = {}
    for suspect in suspects:
        unit = lowest(suspect.units)
        if suspect.single and not suspect.contested and universe.op[unit] not in ops:
            places = frozenset(universe.op_neighbourhoods[place] for place in members(suspect.everywhere))
            groups.setdefault((universe.valueless[unit], places), []).append(suspect)
    found = []
    for group in groups.values():
        known = [suspect for suspect in group if suspect.verified and not suspect.like]
        asked = tuple(dict.fromkeys([*known, group[0], group[-1]]))[:_ASKED]
        others = tuple(suspect for suspect in group if not (suspect in asked or suspect.verified))
        if len(group) >= _FEWEST_ALIKE and others:
            found.append(Kin(asked, others))
    return found


def differing_in_constants(universe: Universe, units: UnitSet) -> UnitSet:
    """All units that differ from one of these in the values of constants only, where there are many such variants."""
    if not universe.valueless:
        return 0
    found = 0
    for kind in {universe.valueless[unit] for unit in members(units)}:
        alike = [unit for unit, its_kind in enumerate(universe.valueless) if its_kind == kind]
        if len({universe.variant[unit] for unit in alike}) >= _FEWEST_ALIKE:
            found |= of(alike)
    return found


@dataclass(frozen=True)
class Atom:
    """Units that the search moves together: all of one variant, or fewer once a variant has been split."""

    units: UnitSet
    variant: int


@dataclass(kw_only=True)
class SearchState:
    """The state of one replay. Only a replay changes it; it is created anew for each."""

    suspects: tuple[Suspect, ...] = ()
    needs_context: tuple[ContextUnits, ...] = ()
    #: The remainders that passed, one for each tried way to break all culprits.
    proof: tuple[UnitSet, ...] = ()
    #: Whether `proof` has every minimal way, and whether there were too many ways to try even a selection.
    exhaustive: bool = True
    cut_short: bool = False
    finished: bool = False
    #: Why no search is possible with this compiler, as a sentence; empty if one is.
    hopeless: str = ""
    #: Whether verdicts contradict each other in a way that the search cannot settle.
    stuck: bool = False
    #: Variants of which a unit failed alone and passed in the model: failing alone says nothing about them.
    only_alone: set[int] = field(default_factory=set)
    #: How far a variant has been split (`Atoms`); 0 if it is missing.
    split: dict[int, int] = field(default_factory=dict)
    #: Units of culprits that the part under search must not contain.
    masked: UnitSet = 0
    #: Units whose probes gave no answer.
    unresolved: UnitSet = 0
    #: Those of `unresolved` whose variant the recorded profile of a compiler lacks.
    not_known: UnitSet = 0
    #: Units that no probe without the culprits can hold (`Universe.impossible_without`).
    impossible: UnitSet = 0
    #: Units of a remainder that failed although it passed with more around it.
    contradicted: UnitSet = 0
    #: The largest passing set once the model is too large as a whole; from then on pieces of at most half its size are
    #: compiled by themselves.
    capacity: UnitSet = 0
    #: Units of the largest probe that gets an answer, once larger ones get none; 0 if there is no such limit.
    answerable: int = 0
    #: What the compiler takes at a time, where that explains the failing probes that hold no culprit. Several limits
    #: may fit; the search keeps to the first.
    limits: tuple[CutLimit, ...] = ()
    #: The atoms in question, and the units that pass with them.
    open: list[Atom] = field(default_factory=list)
    passing: UnitSet = 0
    #: Bits still unknown about the atoms under search: a lower bound on the calls that remain.
    surprise: float = 0.0
