"""Evidence about suspects: what is on record, and what is to be asked before one is confirmed.

A failing probe on record may blame a suspect in its context already (`Blame`). Of suspects that differ in the values of
constants only, in places that look alike, two are asked by themselves and the others together (`Kin`): a compiler may
refuse an op by a constant's value, so each was asked alone. In a small model of which a log names ops, further contexts
could clear a suspect (`NamedContexts`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onnxbisect.language import english
from onnxbisect.search.context import computed_from, few_contexts, grown_contexts, small_contexts
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import alone
from onnxbisect.search.places import lists_ops, named_beside_all, named_first, rests_on_a_part
from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe


def without_others(probe: UnitSet, suspect: Suspect, suspects: Sequence[Suspect]) -> UnitSet:
    """The probe without the units that complete another culprit, or another occurrence of this one."""
    if suspect.single:
        return probe
    for other in suspects:
        if other.capacity or other.pool:
            continue
        for occurrence in other.occurrences:
            units = of(occurrence)
            if is_subset(units, probe) and units != suspect.units and (spare := units & ~suspect.units):
                probe &= ~(1 << lowest(spare))
    return probe


class Blame:
    """Finds a failing probe on the record of one replay that blames a suspect in its context."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    def on_record(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet, context: UnitSet, *, by_words: bool
    ) -> UnitSet | None:
        """A failing probe that blames the suspect; `context` is the part of the remainder near it.

        Either the probe contains the context and, beyond the remainder, only occurrences whose neighbourhood looks like
        the suspect's. Or its message is the one for the suspect alone and differs from that of another probe that
        contains the remainder, all occurrences it may be about look alike, and one of them has no other culprit beside
        it.
        """
        # of an interaction only its own units, and none that completes another one, as a unit that both share may
        most = remainder | (suspect.alike(self._universe, suspect.units) if suspect.single else suspect.units)
        most = without_others(most, suspect, suspects)
        context = without_others(context | suspect.units, suspect, suspects)
        for failing in self._oracle.failing:
            is_here = is_subset(context, failing) and is_subset(failing, most)
            if is_here and (is_subset(remainder, failing) or not self.is_about_others(failing, suspect)):
                return failing
        cut = self._oracle.look(suspect.fails)
        if not by_words or self._oracle.names_mislead or cut is None or not cut.fingerprint or not cut.hints:
            return None
        words = self._words(suspect.fails)
        holding = [failing for failing in self._oracle.failing if is_subset(remainder, failing)]
        if all(self._words(failing) == words for failing in holding):
            return None
        for failing in holding:
            others = failing & ~remainder & ~suspect.everywhere
            meant = self._oracle.named_in(failing) & suspect.everywhere or failing & suspect.everywhere
            alike = len({self._universe.neighbourhoods[unit] for unit in members(meant)}) == 1
            beside = (self._universe.neighbours(of(occurrence)) & others for occurrence in suspect.occurrences)
            if self._words(failing) == words and alike and not all(beside):
                return failing
        return None

    def is_about_others(self, probe: UnitSet, suspect: Suspect) -> bool:
        """Whether the log of a failing probe names units, and none of the suspect's: one may lack what was cut off."""
        verdict = self._oracle.look(probe)
        named = self._oracle.refused_by_log(probe) if verdict is not None and verdict.failed else 0
        return bool(named) and not named & suspect.everywhere

    def _words(self, failing: UnitSet) -> tuple[str, frozenset[str]] | None:
        """The message of a failing probe and the ops it is about; some messages differ only in node names."""
        verdict = self._oracle.look(failing)
        if verdict is None:
            return None
        ops = {self._universe.op[unit] for unit in members(self._oracle.named_in(failing))}
        return verdict.fingerprint, frozenset(ops or verdict.hints.ops)


#: Fewest of them of which some are asked together: in their context without each other, those that are asked by
#: themselves take up to ten calls more, to be seen next to each other.
_FEWEST = 12
#: How many are asked by themselves: the first and the last.
_ASKED = 2


@dataclass(frozen=True)
class Kin:
    """Suspects that differ in constants only: those that are asked by themselves, and the others."""

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
        if len(group) >= _FEWEST and others:
            found.append(Kin(asked, others))
    return found


def differing_in_constants(universe: Universe, units: UnitSet) -> UnitSet:
    """All units that differ from one of these in the values of constants only, where there are many such variants."""
    if not universe.valueless:
        return 0
    found = 0
    for kind in {universe.valueless[unit] for unit in members(units)}:
        alike = [unit for unit, its_kind in enumerate(universe.valueless) if its_kind == kind]
        if len({universe.variant[unit] for unit in alike}) >= _FEWEST:
            found |= of(alike)
    return found


#: Most units of an interaction that is also asked with each unit next to it.
_MOST_GROWN = 3
#: Most different ops of a model of which little is left without one.
_FEW_OPS = 2


class NamedContexts:
    """Contexts that could clear a suspect which a log names."""

    def __init__(self, universe: Universe, oracle: Oracle, *, small: bool) -> None:
        self._universe = universe
        self._oracle = oracle
        self._small = small

    def of_op(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainders: Sequence[UnitSet]
    ) -> tuple[Question, ...]:
        """Contexts for an op that a log names, in a small model; none if the compiler lists all ops that it refuses.

        A log with a single name may mean an interaction that the op is part of, or that a unit is left out that makes
        the op pass.
        """
        if not self._small or lists_ops(self._universe, self._oracle, suspects):
            return ()
        why = english("{say} in a small context", say=suspect.say(self._universe))
        universe, units = self._universe, suspect.units
        if beside := named_beside_all(universe, self._oracle, suspect, suspects):
            probes = [self._oracle.without_named(probe, units) for probe in few_contexts(universe, units, beside)]
        else:
            small = small_contexts(universe, units, named_first(units, suspects))
            probes = [*small, *self._without_one_op(suspect, remainders)]
        before = computed_from(universe, units)
        if not is_subset(before, beside):  # where it is named with all that, nothing in front of it was cut
            probes.append(before)
        return tuple((probe, why) for probe in probes if probe not in (suspect.units, self._universe.everything))

    def _without_one_op(self, suspect: Suspect, remainders: Sequence[UnitSet]) -> list[UnitSet]:
        """The suspect in each remainder with its other places, and beside all that no log names without each op
        of that: it may fail with that op only. What else the logs name there is left out.

        In a model of hardly any ops that would leave too little, and the suspect is asked with each other unit.
        """
        universe, oracle = self._universe, self._oracle
        beside = oracle.without_named(universe.everything, suspect.everywhere)
        found = [remainder | suspect.everywhere for remainder in remainders]
        if len(universe.variant_members) <= _FEW_OPS:
            found += [suspect.units | 1 << other for other in members(universe.everything & ~suspect.units)]
        if is_subset(suspect.units, beside):
            ops = (alike for alike in universe.variant_members if alike & beside & ~suspect.units)
            found += [beside & ~alike | suspect.units for alike in ops]
        return [oracle.without_named(probe, suspect.units) for probe in found]

    def of_interaction(self, suspect: Suspect, suspects: Sequence[Suspect]) -> list[Question]:
        """Contexts for an interaction of a small model where a log names ops.

        None for one of many units, which would lead to ever larger ones, and none where a unit of it fails alone: it
        is not stated as a fact in any case (`places.rests_on_a_part`).
        """
        if size(suspect.units) > _MOST_GROWN or lists_ops(self._universe, self._oracle, suspects):
            return []
        if rests_on_a_part(self._universe, self._oracle, suspect):
            return []
        why = english("{say} with its neighbours", say=suspect.say(self._universe))
        places = [of(place) for it in suspects if it.interaction for place in it.occurrences]
        # an op may fail with some of its neighbours, and compile with all
        around = [union(place for place in places if place >> unit & 1) for unit in members(suspect.units)]
        probes = dict.fromkeys((*grown_contexts(self._universe, suspect), *(it | suspect.units for it in around)))
        return [(probe, why) for probe in probes if probe not in (suspect.units, self._universe.everything)]

    def parts_alone(self, suspect: Suspect) -> list[Question]:
        """Each unit of an interaction alone, in a small model where a log names ops (`places.rests_on_a_part`)."""
        verdict = self._oracle.look(suspect.fails)
        if not self._small or not suspect.interaction or suspect.verified or verdict is None or not verdict.hints:
            return []
        units = members(suspect.units)
        return [(alone(self._universe, unit), english("{op} alone", op=self._universe.op[unit])) for unit in units]
