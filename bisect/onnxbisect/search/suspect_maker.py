"""Make a suspect of a minimal failing set: ask it again where that is due, and find its occurrences."""

from collections.abc import Sequence
from itertools import combinations, islice

from onnxbisect.language import english
from onnxbisect.search.atoms import Atoms
from onnxbisect.search.minimise import CapacityError, Minimiser
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone, apart, choices, components, identical, occurrences, representative
from onnxbisect.search.state import FEWEST_UNITS, Atom, SearchState, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Interactions of as many units after which their number is considered as the cause.
_MANY_AS_LARGE = 2
#: Most choices of units that are looked at for one that holds no suspect.
_MOST_CHOICES = 1000


class SuspectMaker:
    """Every probe goes through the oracle, so methods may raise BlockedError."""

    def __init__(
        self, universe: Universe, oracle: Oracle, state: SearchState, minimiser: Minimiser, atoms: Atoms
    ) -> None:
        self._universe = universe
        self._oracle = oracle
        self._state = state
        self._minimiser = minimiser
        self._atoms = atoms

    def suspect(self, minimal: UnitSet) -> Suspect | None:
        """The suspect of a minimal failing set; None if it gets no answer, or passes when asked again.

        Raises CapacityError if the number of its units is to blame.
        """
        if size(minimal) > 1:
            answer = self._oracle.ask(minimal, english("an interaction"), sure=True)
            if answer.failed and (part := self._part_that_fails(minimal)):
                return self.suspect(part)
            if not answer.failed:
                if not answer.passed:
                    self._state.unresolved |= minimal
                return None
            if pool := self._pool(minimal):
                return Suspect(
                    units=minimal, fails=self._oracle.probe(minimal), occurrences=choices(minimal, pool), pool=pool
                )
            if self._is_too_large(minimal):
                raise CapacityError(minimal)
            places = occurrences(self._universe, minimal)
            return Suspect(units=minimal, fails=self._oracle.probe(minimal), occurrences=places)
        unit = lowest(minimal)
        variant = self._universe.variant[unit]
        self._state.split.setdefault(variant, 1)
        alike = Atom(minimal | identical(self._universe, minimal) & ~self._oracle.exonerated, variant)
        if not self._oracle.ask(self._atoms.alone(alike), english("{say} alone", say=self._atoms.say(alike))).failed:
            self._state.unresolved |= alike.units
            return None
        return self.single(alike)

    def around(self, units: UnitSet, passing: UnitSet, region: UnitSet) -> UnitSet:
        """A minimal failing subset of the units and a passing set, which fail together while each passes."""
        found = [suspect.units for suspect in self._state.suspects if suspect.interaction]
        # A compiler that refuses ops far from each other mostly does so again.
        far = any(len(components(self._universe, one)) > 1 for one in found)
        return self._minimiser.around(units, passing, self._atoms.named.units, region, far=far)

    def _is_too_large(self, minimal: UnitSet) -> bool:
        """Whether the number of units is to blame: others as many fail, too, that hold no suspect.

        Asked where several interactions of as many units were found and nothing as large has passed.
        """
        if len(self._universe) < FEWEST_UNITS:
            return False
        count = size(minimal)
        alike = [it for it in self._state.suspects if it.interaction and size(it.units) == count]
        if len(alike) < _MANY_AS_LARGE or any(size(it) >= count for it in self._oracle.passing):
            return False
        outside = [*members(self._universe.everything & ~minimal), *members(minimal)]
        others = [self._as_large(order, minimal) for order in (outside, outside[::-1])]
        return all(other and self._minimiser.fails(other, english("other units as many")) for other in others)

    def _as_large(self, order: Sequence[int], minimal: UnitSet) -> UnitSet:
        """The first units in this order that are as many and hold no suspect; 0 if there are none among some."""
        for chosen in islice(combinations(order, size(minimal)), _MOST_CHOICES):
            units = of(chosen)
            if units != minimal and not any(it.held_by(units) for it in self._state.suspects):
                return units
        return 0

    def _part_that_fails(self, minimal: UnitSet) -> UnitSet:
        """A part without one unit that fails when rechecked; 0 if there is none or one answer is enough."""
        if not self._oracle.rechecks:
            return 0
        parts = self._minimiser.parts(minimal)
        answers = self._oracle.ask_all(((part, english("a part of an interaction")) for part in parts), sure=True)
        return next((part for part, answer in zip(parts, answers, strict=True) if answer.failed), 0)

    def _pool(self, minimal: UnitSet) -> UnitSet:
        """All units of an op of which the target accepts one fewer than `minimal` has; 0 if there is no such limit.

        The evidence: other choices of the same size fail, and a choice of one unit fewer passes.
        """
        universe = self._universe
        op = universe.op[lowest(minimal)]
        if any(universe.op[unit] != op for unit in members(minimal)):
            return 0
        for pool in dict.fromkeys(
            (universe.units_by_op[op], universe.variant_members[universe.variant[lowest(minimal)]])
        ):
            units, count = list(members(pool)), size(minimal)
            if len(units) == count or not is_subset(minimal, pool):
                continue
            # The same choices for any `minimal`, so that each is asked once.
            several = dict.fromkeys((of(units[:count]), of(units[-count:]), apart(universe, units, count)))
            fails = self._minimiser.fails
            if any(fails(1 << unit, english("{op} alone", op=op)) for unit in members(union(several))):
                continue  # an op that fails alone is no evidence of a limit
            if all(fails(chosen, english("{count} others of {op}", count=count, op=op)) for chosen in several):
                fewer = of(units[: count - 1])
                if not fails(fewer, f"{count - 1} of {op}"):
                    return pool
        return 0

    def _alike(self, unit: int) -> UnitSet:
        """The units of its variant; where weights matter and some of these pass alone, those with its own weights."""
        universe = self._universe
        units = universe.variant_members[universe.variant[unit]]
        if not universe.weightless:
            return units
        answers = (self._oracle.look(alone(universe, other)) for other in members(units))
        if not any(answer is not None and answer.passed for answer in answers):
            return units
        return identical(universe, 1 << unit)

    def single(self, atom: Atom) -> Suspect:
        """The suspect of an atom that fails alone."""
        unit = representative(self._universe, atom.units)
        if not self._state.split.get(atom.variant):
            atom = Atom(self._alike(unit) & ~self._oracle.exonerated, atom.variant)
        self._atoms.guilty.append(atom)
        return Suspect(
            units=1 << unit,
            fails=self._oracle.probe(alone(self._universe, unit)),
            occurrences=tuple((other,) for other in members(atom.units)),
        )
