"""The atoms that the search moves, what the logs on record name and suggest to ask, and how likely each atom is to
blame, so that the search can halve probability instead of count.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onnxbisect.language import english
from onnxbisect.search.oracle import Fails, Oracle
from onnxbisect.search.pattern import alone, identical, representative
from onnxbisect.search.places import failing_only_alone
from onnxbisect.search.state import Atom, SearchState
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind

#: Chance from which an atom is compiled alone at once: that probe is needed anyway and probably confirms it.
HOT = 0.5
#: Odds of an op that the target does not advertise, or that a log has named; and of one that it does advertise.
_NAMED_ODDS = 9.0
_ADVERTISED_FACTOR = 0.1
#: Prior odds that an interaction is to blame and no bad atom, and how many atoms it has, each number equally likely.
_INTERACTION = 0.2
_ATOMS = np.array([2, 3, 5, 8, 12])
#: Chance of an interaction from which on atoms are asked together with the passing set, and not alone.
LIKELY = 0.55
#: Chance that all atoms pass from which on all are asked: half of them would leave a second call more often.
_ALL = 0.36
#: Prior odds of it in a failing group while it is less likely than that.
_UNLIKELY = 0.02
#: Factor on the odds of an atom that passed alone; it may still be part of an interaction.
_ACQUITTED_FACTOR = 0.05


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
        return union(map(self._oracle.named_in, self._oracle.failing))

    @cached_property
    def units(self) -> UnitSet:
        """`nodes`, and for logs that name no node the probe's units of every op they name."""
        # In a log that names nodes, op types would only widen the suspicion.
        nameless = (it for it in self._oracle.failing if not self._oracle.named_in(it))
        return self.nodes | union(map(self._oracle.of_named_ops, nameless))

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
            unlisted = self._oracle.unlisted_in(failing)
            groups.append((named | feeding, english("the first node with wrong numbers and its producers")))
            groups.append((named | unlisted, english("nodes that may have caused the wrong numbers")))
        beside = self._universe.neighbours(named) & failing
        groups.append((named | beside, english("the nodes that the log names, with neighbours")))
        for units, why in groups:
            if units == failing or (1 < size(units) <= size(failing) // 2 and fails(units, why)):
                return units
        return 0

    def _passes_alone(self, unit: int) -> bool:
        known = self._oracle.look(alone(self._universe, unit))
        return self._oracle.passes_within(1 << unit) or (known is not None and known.passed)


class BlameOdds:
    """A posterior over which atoms are to blame, each independently with odds `theta * weight`.

    `theta`, the overall density of blame, is unknown: each value of a grid is weighted by how well it explains the
    atoms known to be safe, those known to be bad, and the failing group that is being split (hierarchical Bayes; with
    one theta and equal weights this is Hwang's generalised binary splitting, JASA 67, 1972).
    """

    def __init__(
        self,
        weights: Mapping[Atom, float],
        named: Mapping[Atom, float],
        acquitted: frozenset[Atom] = frozenset(),
        passing: int = 0,
        interactions: int = 0,
    ) -> None:
        """`passing`: how many atoms are in the passing set; `interactions`: how many of connected units were found."""
        self._weights = weights
        self._named = named
        self._acquitted = acquitted
        count = max(len(weights), 2)
        # Half an atom to half of all atoms to blame, equally likely on a logarithmic scale.
        self._theta = np.geomspace(0.5 / count, 1.0, 16)
        self._density = np.full(16, 1 / 16)
        #: P(what is known of safe and bad atoms, and theta).
        self._known = self._density
        self._bad = 0
        self._passing = passing
        self._interactions = interactions

    def observe(self, safe: Sequence[Atom], bad: Sequence[Atom], failing: Sequence[Atom]) -> None:
        """Weight the densities by what is known; `failing` is a group with at least one bad atom."""
        self._bad = len(bad)
        log = np.zeros_like(self._theta)
        if safe:
            log += np.log1p(-self._chance(safe, acquitted=False)).sum(axis=1)
        if bad:
            log += np.log(self._chance(bad)).sum(axis=1)
        self._known = np.exp(log) / len(log)
        if failing:
            log += np.log(self._some(failing))
        density = np.exp(log - log.max())
        self._density = density / density.sum()

    def _chance(self, atoms: Sequence[Atom], acquitted: bool = True) -> NDArray[np.float64]:
        """P(atom is bad | theta), one row for each theta; `acquitted=False` ignores that atoms passed alone."""
        weights = [
            self._weights[atom] * (_ACQUITTED_FACTOR if acquitted and atom in self._acquitted else 1.0)
            for atom in atoms
        ]
        odds = np.outer(self._theta, weights)
        named = np.array([self._named.get(atom, 0.0) for atom in atoms])
        odds = np.where(named > 0, named, odds)
        return np.asarray(np.clip(odds / (1 + odds), 1e-6, 0.95), dtype=np.float64)

    def chance(self, atoms: Sequence[Atom], failing: Sequence[Atom] = ()) -> list[float]:
        """P(atom is bad), given that `failing`, if it has the atom, has at least one bad atom."""
        if not atoms:
            return []
        chances = self._chance(atoms)
        if failing:
            # Bayes for each density: P(bad and group fails) is P(bad) for a member of the group.
            inside = set(failing)
            member = np.array([atom in inside for atom in atoms])
            chances = np.where(member, np.minimum(chances / self._some(failing)[:, None], 1.0), chances)
        return [float(chance) for chance in self._density @ chances]

    def _some(self, atoms: Sequence[Atom]) -> NDArray[np.float64]:
        """P(at least one of these is bad | theta)."""
        return np.asarray(-np.expm1(np.log1p(-self._chance(atoms)).sum(axis=1)), dtype=np.float64)

    def even_split(self, atoms: Sequence[Atom], failing: bool) -> int:
        """How many of the first atoms to compile together, so that pass and fail are equally likely.

        All of them, if they pass with a chance of `_ALL`; of few atoms, the number that saves most calls. `failing`: at
        least one of the atoms is bad; then at least one is left out.
        """
        log_clean = np.cumsum(np.log1p(-self._chance(atoms)), axis=1)
        clean = np.exp(log_clean)
        if failing:
            some = 1 - clean[:, -1:]
            # The more of its likely members passed alone, the likelier is an interaction, of which any part passes.
            left = some / -np.expm1(np.log1p(-self._chance(atoms, acquitted=False)).sum(axis=1, keepdims=True))
            together = _UNLIKELY / (_UNLIKELY + left)
            passing = self._density @ (together + (1 - together) * (clean - clean[:, -1:]) / some)
        else:
            passing = self._density @ clean
        if not failing and passing[-1] >= _ALL:
            return len(atoms)
        last = len(atoms) - 1 if failing else len(atoms)
        count = 1 + int(np.argmin(np.abs(passing[:last] - 0.5)))
        if count != 2 or not self._acquitted.isdisjoint(atoms[:3]):
            return count
        # A bad atom is compiled alone in any case, so asking one by one wastes calls only on clean atoms: a group that
        # passes saves one call for each member, and costs one. A pair seldom saves as much as one or three do.
        saved = [1.0, *(few * passing[few - 1] for few in (2, 3) if few <= last)]
        return 1 + int(np.argmax(saved))

    def interaction(self, failing: Sequence[Atom]) -> float:
        """P(an interaction is to blame, and no bad atom), where the passing set fails with these atoms.

        The more atoms pass, the less likely is a bad one among those left, and the likelier is it that the last atom of
        an interaction is one of them. A compiler that twice refused ops together often does so again.
        """
        within = self._within(len(failing))
        # Where no bad atom was found, there may be none at all.
        known = float(self._known.sum()) if self._bad else 1.0
        bad_atom = float(self._known @ self._some(failing))
        prior = _INTERACTION * max(1, self._interactions) / (1 + self._bad)
        odds = prior * known * float(within[-1] - within[0]) / bad_atom
        return odds / (1 + odds)

    def joint_split(self, failing: Sequence[Atom]) -> int:
        """As `even_split` of a failing group, where an interaction is likely."""
        together = self.interaction(failing)
        within = self._within(len(failing))
        clean = np.exp(np.cumsum(np.log1p(-self._chance(failing)), axis=1))
        singles = self._density @ ((clean - clean[:, -1:]) / (1 - clean[:, -1:]))
        incomplete = (within[-1] - within[1:]) / (within[-1] - within[0])
        passing = together * incomplete + (1 - together) * singles
        return 1 + int(np.argmin(np.abs(passing[:-1] - 0.5)))

    def _within(self, count: int) -> NDArray[np.float64]:
        """P(the passing set with 0, 1, … `count` more atoms contains all atoms of an interaction)."""
        shares = (self._passing + np.arange(count + 1)) / max(len(self._weights) - self._bad, self._passing + count)
        return np.asarray((shares[:, None] ** _ATOMS).mean(axis=1), dtype=np.float64)

    def surprise(self, atoms: Sequence[Atom]) -> float:
        """Bits still unknown about these atoms: a lower bound on the remaining calls."""
        return sum(-(p * math.log2(p) + (1 - p) * math.log2(1 - p)) for p in self.chance(atoms) if 0 < p < 1)


def rarity(units: UnitSet) -> float:
    """Relative odds of an atom by its frequency: compilers rarely lack the ops that models mostly consist of."""
    return 1 / math.sqrt(size(units))


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

    def is_refused(self, atom: Atom) -> bool:
        """Whether it fails by itself, and no unit like it passed among others: that one is refused only alone."""
        if atom.variant in self._state.only_alone or not self.fails_by_itself(atom):
            return False
        if identical(self._universe, self.alone(atom)) & self._oracle.exonerated:
            self._state.only_alone.add(atom.variant)
            return False
        return True

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
        if any(is_subset(failing, along) for failing in self._oracle.failing):
            return False  # what is known to fail is looked for before
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
        looked = ((atom.variant, self._oracle.look(self.alone(atom))) for atom in atoms)
        return union(self._universe.variant_members[it] for it, said in looked if said and said.kind is Kind.UNKNOWN)

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
            atom: _NAMED_ODDS
            for atom in pool
            if (atom.units & self.named.units or self._advertised(atom) is False) and not self.tried(atom)
        }
        beliefs = BlameOdds(
            {atom: weight / mean for atom, weight in weights.items()},
            named,
            acquitted,
            passing=len(safe),
            interactions=sum(
                it.interaction and len(self._universe.components(it.units)) == 1 for it in self._state.suspects
            ),
        )
        # What a log has named was not found by chance, so it says nothing of the density; nor does a failure
        # that it explains, or a second variant of an op.
        ops = {self._universe.op[lowest(atom.units)]: atom for atom in reversed(self.guilty)}
        found = [it for it in ops.values() if not it.units & self.named.units and self._advertised(it) is not False]
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
        return self._prior_weight(atom) * (_ACQUITTED_FACTOR if self.tried(atom) else 1.0)

    def _prior_weight(self, atom: Atom) -> float:
        return rarity(atom.units) * (_ADVERTISED_FACTOR if self._advertised(atom) else 1.0)

    def _advertised(self, atom: Atom) -> bool | None:
        """Whether the target advertises the atom's op; None if it advertises none."""
        advertised = self._universe.advertised
        return None if advertised is None else self.say(atom) in advertised

    def say(self, atom: Atom) -> str:
        """The atom's op, for progress lines."""
        return self._universe.op[lowest(atom.units)]


def units_of(atoms: Iterable[Atom]) -> UnitSet:
    """The units of all these atoms."""
    return union(atom.units for atom in atoms)
