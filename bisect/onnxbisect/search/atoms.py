"""The atoms that the search moves, their prior odds, and what the logs on record name and suggest to ask."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from onnxbisect.language import english
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.pattern import alone, components, representative
from onnxbisect.search.prior import ACQUITTED_FACTOR, ADVERTISED_FACTOR, NAMED_ODDS, Atom, BlameOdds, rarity
from onnxbisect.search.state import CutInducedFailure, SearchState
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind

#: A passing probe up to this size shows well enough which neighbours such a unit needs.
SMALL = 8


def failing_only_alone(universe: Universe, oracle: Oracle) -> dict[int, UnitSet]:
    """For each variant that fails alone although one of its units passed among others: the failing probe."""
    found: dict[int, UnitSet] = {}
    for failing in oracle.failing:
        if size(failing) != 1:
            break
        if any(passing & _alike(universe, failing) for passing in oracle.passing):
            found.setdefault(universe.variant[lowest(failing)], failing)
    return found


def cut_induced_failures(universe: Universe, oracle: Oracle, blamed: UnitSet) -> list[CutInducedFailure]:
    """These units, each with the smallest group in which it passed. Asks one small group, and the unit alone again.

    `blamed` are units of culprits: the same op may be to blame in another place.
    """
    found = []
    for failing in failing_only_alone(universe, oracle).values():
        alike = _alike(universe, failing) & ~blamed
        op = universe.op[lowest(failing)]
        if not alike or not oracle.ask(failing, english("{op} alone", op=op), again=True).failed:
            continue
        smallest = min((passing for passing in oracle.passing if passing & alike), key=size, default=0)
        if smallest and size(smallest) > SMALL:
            smallest = _surroundings_that_pass(universe, oracle, smallest & alike, op) or smallest
        if smallest:
            found.append(
                CutInducedFailure(
                    units=1 << lowest(smallest & alike),
                    occurrences=tuple((unit,) for unit in members(alike)),
                    passes_with=smallest,
                )
            )
    return found


def _surroundings_that_pass(universe: Universe, oracle: Oracle, passed: UnitSet, op: str) -> UnitSet:
    group = 1 << lowest(passed)
    for _ in range(2):
        group |= universe.neighbours(group)
        if oracle.ask(group, english("{op} with its neighbours", op=op)).passed:
            return group
    return 0


def _alike(universe: Universe, one: UnitSet) -> UnitSet:
    """All units that are identical to this one when cut out alone."""
    unit = lowest(one)
    same = universe.variant_members[universe.variant[unit]]
    return of(other for other in members(same) if universe.solo[other] == universe.solo[unit])


#: Asks whether a set fails, with the phrase that says why (`Minimiser.fails`).
Fails = Callable[[UnitSet, str], bool]


class LogHints:
    """The hints of all logs in one replay, during which no log is added."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    @cached_property
    def informative(self) -> bool:
        """Whether this compiler's logs name anything; then a probe of everything else reveals the next name."""
        verdicts = [self._oracle.look(failing) for failing in self._oracle.failing]
        return any(verdict is not None and bool(verdict.hints) for verdict in verdicts)

    @cached_property
    def nodes(self) -> UnitSet:
        """All units whose nodes or tensors the log of a failing probe names."""
        named = 0
        for failing in self._oracle.failing:
            named |= self._oracle.named_in(failing)
        return named

    @cached_property
    def units(self) -> UnitSet:
        """`nodes`, and for logs that name no node the probe's units of every op they name."""
        named = self.nodes
        for failing in self._oracle.failing:
            # In a log that names nodes, op types would only widen the suspicion.
            if not self._oracle.named_in(failing):
                named |= self._oracle.of_named_ops(failing)
        return named

    @cached_property
    def passed_over(self) -> UnitSet:
        """The units of failing probes whose logs list several nodes, and not these: a list mostly has all refused.

        A table of wrong numbers lists where they begin.
        """
        failing = (it for it in self._oracle.failing if not self._oracle.has_wrong_numbers(it))
        lists = ((it, self._oracle.named_in(it)) for it in failing)
        return union(it & ~named for it, named in lists if size(named) > 1)

    def interacting(self, region: UnitSet, fails: Fails) -> UnitSet:
        """A failing set of named units, or of them and their surroundings, whose units each passed alone; else 0.

        Where wrong numbers begin, the unit itself may fail: the unit that passed for its op had another shape.
        """
        inside = (probe for probe in self._oracle.failing if is_subset(probe, region))
        failing = next((probe for probe in inside if not self._oracle.passes_within(probe)), 0)
        named = self._oracle.named_in(failing)
        numeric = self._oracle.has_wrong_numbers(failing)
        if numeric:
            for unit in members(named):
                if fails(1 << unit, english("{op} alone, the first with wrong numbers", op=self._universe.op[unit])):
                    return 1 << unit
        if not named or not all(map(self._passes_alone, members(named))):
            return 0
        groups = [(named, english("the nodes that the log names"))]
        if numeric:
            feeding = union(self._universe.predecessors[unit] for unit in members(named)) & failing
            groups.append((named | feeding, english("the first node with wrong numbers and its producers")))
            groups.append(
                (named | self._oracle.unlisted_in(failing), english("nodes that may have caused the wrong numbers"))
            )
        groups.append(
            (
                named | self._universe.neighbours(named) & failing,
                english("the nodes that the log names, with neighbours"),
            )
        )
        for units, why in groups:
            if units == failing or (1 < size(units) <= size(failing) // 2 and fails(units, why)):
                return units
        return 0

    def _passes_alone(self, unit: int) -> bool:
        known = self._oracle.look(alone(self._universe, unit))
        return self._oracle.passes_within(1 << unit) or (known is not None and known.passed)


class Atoms:
    """Atoms and odds of one replay. `SearchState.split` is how far a variant has been split.

    Level 0: all its units are one atom. Level 1: one atom for each shape and direct context. Level 2: every unit.

    `chosen_to_pass`: the units replace a culprit, and were chosen because ops like them pass. So a group of them is to
    blame, unless a log names one.
    """

    def __init__(self, universe: Universe, oracle: Oracle, state: SearchState, *, chosen_to_pass: bool = False) -> None:
        self._universe = universe
        self._oracle = oracle
        self.chosen_to_pass = chosen_to_pass
        self.named = LogHints(universe, oracle)
        self._state = state
        state.only_alone.update(failing_only_alone(universe, oracle))
        #: Atoms known to be to blame: they tell how dense blame is.
        self.guilty: list[Atom] = []

    def of_units(self, units: UnitSet) -> list[Atom]:
        """The units as atoms, in the order of their first units."""
        found = []
        for variant, alike in enumerate(self._universe.variant_members):
            inside = alike & units
            if inside:
                found += [Atom(part, variant) for part in self._parts(variant, inside)]
        return sorted(found, key=lambda atom: lowest(atom.units))

    def _parts(self, variant: int, units: UnitSet) -> list[UnitSet]:
        level = self._state.split.get(variant, 0)
        if level == 0:
            return [units]
        groups: dict[tuple[int, ...], list[int]] = {}
        for unit in members(units):
            key = (self._universe.solo[unit], self._universe.surroundings[unit]) if level == 1 else (unit,)
            groups.setdefault(key, []).append(unit)
        return [of(group) for group in groups.values()]

    def alone(self, atom: Atom) -> UnitSet:
        """The probe of the atom alone."""
        return alone(self._universe, representative(self._universe, atom.units))

    def ask_alone(self, atom: Atom) -> None:
        """Ask the probe of the atom alone."""
        self._oracle.ask(self.alone(atom), english("{say} alone", say=self.say(atom)))

    def fails_by_itself(self, atom: Atom) -> bool:
        """Whether it is known to fail alone, and not because of its required producers."""
        asked = self.alone(atom)
        probe = self._oracle.probe(asked)
        known = self._oracle.look(probe)
        if known is None or not known.failed:
            return False
        along = probe & ~asked
        if not along or self._oracle.passes_within(along):
            return True
        if not self._oracle.names_mislead:
            if named := self._oracle.named_in(probe):
                return bool(named & asked)
            if asked & self._oracle.of_named_ops(probe):
                return True
        return self._oracle.ask(along, english("the nodes that {say} requires", say=self.say(atom))).passed

    def tried(self, atom: Atom) -> bool:
        """Whether a probe of the atom alone would add no information, or is not expected to."""
        return self.asked(atom) or (self.chosen_to_pass and not atom.units & self.named.units)

    def asked(self, atom: Atom) -> bool:
        """Whether a probe of the atom alone would add no information."""
        probe = self.alone(atom)
        known = self._oracle.look(probe) is not None or self._oracle.passes_within(probe)
        return known or atom.variant in self._state.only_alone

    def not_known(self, atoms: Iterable[Atom]) -> UnitSet:
        """Units of variants that the recorded profile of a compiler lacks; no probe would add information."""
        found = 0
        for atom in atoms:
            verdict = self._oracle.look(self.alone(atom))
            if verdict is not None and verdict.kind is Kind.UNKNOWN:
                found |= self._universe.variant_members[atom.variant]
        return found

    def is_fine_elsewhere(self, atom: Atom) -> bool:
        """Whether a unit like it has passed among other units, and none alone."""
        known = self._oracle.look(self.alone(atom))
        return (known is None or not known.passed) and self.tried(atom)

    def take_apart(self, atom: Atom) -> None:
        """Split the atom's variant one level further."""
        self._state.split[atom.variant] = self._state.split.get(atom.variant, 0) + 1

    def beliefs(self, passing: UnitSet, pool: list[Atom], group: list[Atom]) -> BlameOdds:
        """A posterior for the atoms in question; `group` is part of a failing probe, `passing` units are safe."""
        safe = self.of_units(passing)
        everyone = list(dict.fromkeys((*safe, *pool, *group, *self.guilty)))
        weights = {atom: self._prior_weight(atom) for atom in everyone}
        acquitted = frozenset(atom for atom in (*pool, *group) if self.tried(atom))
        mean = sum(rarity(atom.units) for atom in everyone) / len(everyone)
        named = self._odds_of_relatives(pool) | {
            atom: NAMED_ODDS
            for atom in pool
            if (atom.units & self.named.units or self._unadvertised(atom)) and not self.tried(atom)
        }
        beliefs = BlameOdds(
            {atom: weight / mean for atom, weight in weights.items()},
            named,
            acquitted,
            passing=len(safe),
            interactions=sum(
                it.interaction and len(components(self._universe, it.units)) == 1 for it in self._state.suspects
            ),
        )
        # What a log has named was not found by chance, so it says nothing of the density; nor does a failure
        # that it explains, or a second variant of an op.
        ops = {self._universe.op[lowest(atom.units)]: atom for atom in reversed(self.guilty)}
        found = [it for it in ops.values() if not it.units & self.named.units and not self._unadvertised(it)]
        beliefs.observe(
            [*safe, *sorted(acquitted, key=lambda atom: lowest(atom.units))],
            found,
            group if named.keys().isdisjoint(group) else [],
        )
        return beliefs

    def _odds_of_relatives(self, pool: Sequence[Atom]) -> dict[Atom, float]:
        """The odds of atoms of which other variants of the op fail alone: these, to one more than those that passed.

        Where weights decide, a variant of an op may have other weights only, and says nothing of the others. What a
        list of refused nodes passes over is likelier fine.
        """
        if self._universe.weightless:
            return {}
        op, members_of = self._universe.op, self._universe.variant_members
        guilty = Counter(op[lowest(atom.units)] for atom in self.guilty)
        passed = Counter(op[lowest(units)] for units in members_of if guilty and units & self._oracle.exonerated)
        relatives = (it for it in pool if guilty[op[lowest(it.units)]] and it.units & ~self.named.passed_over)
        untried = [atom for atom in relatives if not self.tried(atom)]
        return {atom: guilty[op[lowest(atom.units)]] / (1 + passed[op[lowest(atom.units)]]) for atom in untried}

    def weight(self, atom: Atom) -> float:
        """Relative odds that the atom is to blame."""
        return self._prior_weight(atom) * (ACQUITTED_FACTOR if self.tried(atom) else 1.0)

    def _prior_weight(self, atom: Atom) -> float:
        weight = rarity(atom.units)
        advertised = self._universe.advertised
        if advertised is not None and self._universe.op[lowest(atom.units)] in advertised:
            weight *= ADVERTISED_FACTOR
        return weight

    def _unadvertised(self, atom: Atom) -> bool:
        advertised = self._universe.advertised
        return advertised is not None and self._universe.op[lowest(atom.units)] not in advertised

    def say(self, atom: Atom) -> str:
        """The atom's op, for progress lines."""
        return self._universe.op[lowest(atom.units)]


def units_of(atoms: Iterable[Atom]) -> UnitSet:
    """The units of all these atoms."""
    return union(atom.units for atom in atoms)
