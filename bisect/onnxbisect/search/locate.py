"""Finding the next culprit inside a part of the model, by halving probability.

The search grows a set that passes. What is asked next joins it, so that fused patterns keep their context and
the last passing set is the remainder itself; only an atom that is likelier to be to blame than not is asked alone.
"""

from collections.abc import Sequence

from onnxbisect.search.artefacts import suspended
from onnxbisect.search.interaction import Minimiser
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import Occurrence, alone, occurrences, representative
from onnxbisect.search.prior import (
    ACQUITTED_FACTOR,
    ADVERTISED_FACTOR,
    HOT,
    NAMED_ODDS,
    Atom,
    Beliefs,
    rarity,
)
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe


class Locator:
    """One replay's search for culprits. `split` says how far a variant has been taken apart.

    Level 0: all its units are one atom. Level 1: one for each shape and direct context. Level 2: every unit.
    """

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle
        self._minimiser = Minimiser(universe, oracle)
        self.split: dict[int, int] = {}
        #: Variants of which a unit failed alone and passed in the model: failing alone says nothing of them.
        self.artefacts = set(suspended(universe, oracle))
        #: Variants known to be to blame: they tell how dense blame is.
        self.guilty: list[Atom] = []
        #: Units of which no probe gave an answer.
        self.unresolved: UnitSet = 0
        #: Units of a remainder that failed although it passed with more around it.
        self.contradicted: UnitSet = 0
        #: The largest passing set once the whole is too large: from then on pieces are asked by themselves,
        #: no larger than half of it.
        self.capacity: UnitSet = 0
        #: Bits still unknown about the atoms under search: a lower bound on the calls that remain.
        self.surprise = 0.0

    def find(self, region: UnitSet) -> Suspect | None:
        """A culprit inside the region, None once the region passes (or, beyond capacity, all its pieces do)."""
        # Every turn asks something, or takes a variant apart, or gives a unit up; what does neither has no answer.
        for _ in range(4 * len(self._universe) + 64):
            region &= ~self.unresolved
            if not region or self._passes(region):
                return None
            passing = 0 if self.capacity else self._oracle.best_passing(region)
            covered = self._covered(region) if self.capacity else passing
            pool = self.atoms(region & ~covered)
            if not pool:
                return None
            for atom in pool:
                known = self._oracle.look(self._alone(atom))
                if known is not None and known.failed and atom.variant not in self.artefacts:
                    return self._single(atom)
            suspect = self._step(region, passing, pool)
            if suspect is not None:
                return suspect
        self.unresolved |= region & ~self._oracle.best_passing(region)
        return None

    def _passes(self, region: UnitSet) -> bool:
        """Whether the region passes, by a probe of its own; it is asked where a larger one passed."""
        if not self._oracle.passes_within(region):
            return False
        if not self._oracle.ask(region, "a remainder", sure=True).passed:
            self.contradicted |= region
        return True

    def atoms(self, units: UnitSet) -> list[Atom]:
        """The units as atoms, in the order of their first units."""
        found = []
        for variant, alike in enumerate(self._universe.variant_members):
            inside = alike & units
            if inside:
                found += [Atom(part, variant) for part in self._parts(variant, inside)]
        return sorted(found, key=lambda atom: lowest(atom.units))

    def _parts(self, variant: int, units: UnitSet) -> list[UnitSet]:
        level = self.split.get(variant, 0)
        if level == 0:
            return [units]
        groups: dict[tuple[int, ...], list[int]] = {}
        for unit in members(units):
            key = (self._universe.solo[unit], self._universe.surroundings[unit]) if level == 1 else (unit,)
            groups.setdefault(key, []).append(unit)
        return [of(group) for group in groups.values()]

    def _alone(self, atom: Atom) -> UnitSet:
        return alone(self._universe, representative(self._universe, atom.units))

    def _covered(self, region: UnitSet) -> UnitSet:
        covered = 0
        for passing in self._oracle.passing:
            covered |= passing & region
        return covered

    def _tried(self, atom: Atom) -> bool:
        probe = self._alone(atom)
        known = self._oracle.look(probe) is not None or self._oracle.passes_within(probe)
        return known or atom.variant in self.artefacts

    def _step(self, region: UnitSet, passing: UnitSet, pool: list[Atom]) -> Suspect | None:
        """Ask what tells most. Returns a suspect, or None where the answers are to be looked at afresh."""
        failing = self._oracle.smallest_failing(region, passing)
        group = [atom for atom in pool if failing is not None and atom.units & failing]
        if failing is not None:
            group = [Atom(atom.units & failing, atom.variant) for atom in group]
        beliefs = self._beliefs(region, passing, pool, group)
        chances = dict(zip(pool, beliefs.chance(pool, [a for a in pool if a.units & (failing or 0)]), strict=True))
        self.surprise = beliefs.surprise(pool)
        hot = [atom for atom in pool if chances[atom] >= HOT and not self._tried(atom)]
        if hot:
            self._ask_hot(hot, region, passing, pool, beliefs)
            return None
        if failing is not None and len(group) == 1:
            return self._leaf(group[0], passing, failing)
        # What passed alone can fail only together with more, so it joins last.
        candidates = sorted(group or pool, key=lambda atom: (self._tried(atom), self._weight(atom), lowest(atom.units)))
        untried = [atom for atom in group if not self._tried(atom)]
        if 1 <= len(untried) <= 2:
            # One of them is to blame, so the answer alone is also the one that confirms it.
            self._ask_alone(max(untried, key=lambda atom: (self._weight(atom), -lowest(atom.units))))
        else:
            self._ask_group(candidates, passing, beliefs, failing=bool(group))
        return None

    def _ask_alone(self, atom: Atom) -> None:
        self._oracle.ask(self._alone(atom), f"{self._say(atom)} alone")

    def _ask_hot(self, hot: list[Atom], region: UnitSet, passing: UnitSet, pool: list[Atom], beliefs: Beliefs) -> None:
        questions: list[Question] = [(self._alone(atom), f"{self._say(atom)} alone") for atom in hot]
        rest = [atom for atom in pool if atom not in hot]
        if rest and not self.capacity:
            if self._informative():
                questions.append((region & ~_union(hot), "the model without what is suspected"))
            else:
                rest.sort(key=lambda atom: (self._weight(atom), lowest(atom.units)))
                chosen = _union(rest[: beliefs.even_split(rest, failing=False)])
                questions.append((passing | chosen, "a group of ops that is likely to pass"))
        self._oracle.ask_all([(units, why) for units, why in questions if not self._oracle.passes_within(units)])

    def _ask_group(self, candidates: Sequence[Atom], passing: UnitSet, beliefs: Beliefs, *, failing: bool) -> None:
        if not failing and self._informative() and not self.capacity:
            count = len(candidates)
        else:
            count = beliefs.even_split(candidates, failing)
        if self.capacity:
            room = size(self.capacity) // 2
            while count > 1 and size(_union(candidates[:count])) > room:
                count -= 1
        chosen = candidates[:count]
        untried = [atom for atom in chosen if not self._tried(atom)]
        if len(untried) == 1 and count < len(candidates):
            self._ask_alone(untried[0])
            return
        group = _union(chosen)
        self._oracle.ask(passing | group, f"{size(group)} more units that are likely to pass")

    def _leaf(self, atom: Atom, passing: UnitSet, failing: UnitSet) -> Suspect | None:
        """One atom that fails with what passes; `failing` is the probe that says so."""
        if not self._tried(atom):
            self._ask_alone(atom)
            return None
        narrowed = not is_subset(passing, failing)
        if not narrowed:
            together = self._oracle.ask(failing, f"{self._say(atom)} in context", again=True)
            if together.passed:
                return None
            if not together.failed:
                self.unresolved |= atom.units
                return None
        if atom.variant in self.artefacts:
            return self._artefact_leaf(atom, passing)
        if not narrowed:
            failing = self._minimiser.close_by(atom.units, passing)
        return self._found(self._minimiser.narrow(failing, self._named_units()))

    def _artefact_leaf(self, atom: Atom, passing: UnitSet) -> Suspect | None:
        """A unit of a variant that is fine elsewhere: to blame only where it fails in context."""
        if size(atom.units) > 1:
            self.split[atom.variant] = self.split.get(atom.variant, 0) + 1
            return None
        unit = lowest(atom.units)
        probe = alone(self._universe, unit)
        if self._oracle.ask(probe, f"{self._say(atom)} alone").failed:
            return Suspect(units=atom.units, fails=self._oracle.probe(probe), occurrences=((unit,),))
        together = self._minimiser.close_by(atom.units, passing)
        return self._found(self._minimiser.narrow(together, self._named_units()))

    def _found(self, minimal: UnitSet) -> Suspect | None:
        if size(minimal) > 1:
            answer = self._oracle.ask(minimal, "an interaction", sure=True)
            if not answer.failed:
                self.unresolved |= 0 if answer.passed else minimal
                return None
            return self.interaction(minimal, occurrences(self._universe, minimal))
        unit = lowest(minimal)
        variant = self._universe.variant[unit]
        self.split.setdefault(variant, 1)
        solo = self._universe.solo
        alike = Atom(
            of(other for other in members(self._universe.variant_members[variant]) if solo[other] == solo[unit]),
            variant,
        )
        if not self._oracle.ask(self._alone(alike), f"{self._say(alike)} alone").failed:
            self.unresolved |= alike.units
            return None
        return self._single(alike)

    def interaction(self, units: UnitSet, places: tuple[Occurrence, ...]) -> Suspect:
        """A suspect of several units."""
        return Suspect(
            units=units,
            fails=self._oracle.probe(units),
            occurrences=places,
            subsets=self._minimiser.parts(units),
        )

    def _single(self, atom: Atom) -> Suspect:
        unit = representative(self._universe, atom.units)
        if not self.split.get(atom.variant):
            atom = Atom(self._universe.variant_members[atom.variant], atom.variant)
        self.guilty.append(atom)
        return Suspect(
            units=1 << unit,
            fails=self._oracle.probe(alone(self._universe, unit)),
            occurrences=tuple((other,) for other in members(atom.units)),
        )

    def _beliefs(self, region: UnitSet, passing: UnitSet, pool: list[Atom], group: list[Atom]) -> Beliefs:
        safe = self.atoms(self._covered(region) if self.capacity else passing)
        everyone = list(dict.fromkeys((*safe, *pool, *group, *self.guilty)))
        weights = {atom: self._prior_weight(atom) for atom in everyone}
        acquitted = frozenset(atom for atom in (*pool, *group) if self._tried(atom))
        mean = sum(rarity(atom.units) for atom in everyone) / len(everyone)
        named_units = self._named_units()
        named = {
            atom: NAMED_ODDS
            for atom in pool
            if (atom.units & named_units or self._unadvertised(atom)) and not self._tried(atom)
        }
        beliefs = Beliefs({atom: weight / mean for atom, weight in weights.items()}, named, acquitted)
        # What a log has named was not found by chance, so it says nothing of the density; nor does a failure
        # that it explains.
        found = [atom for atom in self.guilty if not atom.units & named_units and not self._unadvertised(atom)]
        beliefs.observe(
            [*safe, *sorted(acquitted, key=lambda atom: lowest(atom.units))],
            found,
            group if named.keys().isdisjoint(group) else [],
        )
        return beliefs

    def _weight(self, atom: Atom) -> float:
        return self._prior_weight(atom) * (ACQUITTED_FACTOR if self._tried(atom) else 1.0)

    def _prior_weight(self, atom: Atom) -> float:
        weight = rarity(atom.units)
        advertised = self._universe.advertised
        if advertised is not None and self._universe.op[lowest(atom.units)] in advertised:
            weight *= ADVERTISED_FACTOR
        return weight

    def _unadvertised(self, atom: Atom) -> bool:
        advertised = self._universe.advertised
        return advertised is not None and self._universe.op[lowest(atom.units)] not in advertised

    def _informative(self) -> bool:
        """Whether this compiler's logs name anything: then asking everything else is asking for the next name."""
        return any(self._verdict_hints(failing) for failing in self._oracle.failing)

    def _verdict_hints(self, failing: UnitSet) -> bool:
        verdict = self._oracle.look(failing)
        return verdict is not None and bool(verdict.hints)

    def _named_units(self) -> UnitSet:
        """All units that the log of a failing probe names and that were in that probe."""
        universe = self._universe
        named = 0
        for failing in self._oracle.failing:
            verdict = self._oracle.look(failing)
            if verdict is None or not verdict.hints:
                continue
            units = of(
                universe.unit_by_name[name]
                for name in (*verdict.hints.nodes, *verdict.hints.tensors)
                if name in universe.unit_by_name
            )
            # A log that names nodes has said all; the op type beside it would only widen the suspicion.
            if not units & failing:
                for op in verdict.hints.ops:
                    units |= universe.units_by_op.get(op, 0)
            named |= units & failing
        return named

    def _say(self, atom: Atom) -> str:
        return self._universe.op[lowest(atom.units)]


def _union(atoms: Sequence[Atom]) -> UnitSet:
    union = 0
    for atom in atoms:
        union |= atom.units
    return union
