"""Questions about suspects of a small model of which a log names ops."""

from collections.abc import Sequence

from onnxbisect.language import english
from onnxbisect.search.context import computed_from, few_contexts, grown_contexts, small_contexts
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import alone
from onnxbisect.search.places import lists_ops, named_beside_all, named_first, rests_on_a_part
from onnxbisect.search.state import Suspect
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from onnxbisect.universe import Universe

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
