"""Find the next culprit in a part of the model, by halving probability, and make a suspect of it.

The search extends a set that passes. Each probe adds units to that set, so that fused patterns keep their context and
the last passing probe is the remainder itself. An atom is asked alone only if it is more likely to be to blame than
not.
"""

from collections.abc import Sequence

from onnxbisect.language import english
from onnxbisect.search.atoms import HOT, LIKELY, Atoms, BlameOdds, units_of
from onnxbisect.search.context import REACH, passed_together
from onnxbisect.search.limits import are_too_many, limited_pool, too_large_to_answer
from onnxbisect.search.minimise import CapacityError, Minimiser
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import alone, choices, identical, occurrences, representative
from onnxbisect.search.state import Atom, SearchState, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe

#: Most units with wrong numbers, with their producers, that a brief search takes as they are: to replace one of them
#: takes no more calls than to tell which is to blame.
_FEW_NAMED = 3


class Locator:
    """Finds one culprit after the other in a part of the model; created anew for each replay."""

    def __init__(self, universe: Universe, oracle: Oracle, state: SearchState, *, brief: bool = False) -> None:
        self._universe = universe
        self._oracle = oracle
        self._state = state
        self._brief = brief
        self.minimiser = Minimiser(universe, oracle)
        self.atoms = Atoms(universe, oracle, state, chosen_to_pass=brief and universe.is_small)
        #: Variants that fail inside the model and pass in a part of it, while no few units make the difference.
        self._contested: set[int] = set()

    def find(self, region: UnitSet) -> Suspect | None:
        """A culprit inside the region; None once the region passes (or, beyond capacity, all its pieces do)."""
        # Every iteration asks a probe, splits a variant or gives up a unit.
        for _ in range(4 * len(self._universe) + 64):
            region &= ~self._state.unresolved
            if not region or self._passes(region):
                return None
            if not self._state.answerable:
                too_large_to_answer(self._oracle)
            passing = 0 if self._state.capacity else self._start(region)
            covered = union(it & region for it in self._oracle.passing) if self._state.capacity else passing
            pool = self.atoms.of_units(region & ~covered)
            if not pool:
                return None
            if not_known := self.atoms.not_known(pool):
                self._state.not_known |= not_known
                self._state.unresolved |= not_known
                continue
            for atom in pool:
                if self.atoms.is_refused(atom):
                    return self._single(atom)
            if self._put_back(region, passing):
                continue
            suspect = self._step(region, passing, covered, pool)
            if suspect is not None:
                return suspect
        self._state.unresolved |= region & ~self._oracle.best_passing(region)
        return None

    def _start(self, region: UnitSet) -> UnitSet:
        """The largest part of the region that passes; or one without a single atom of the smallest that fails.

        Where a search is replayed, larger parts passed since it found its first culprits. Of what failed then they may
        lack several atoms, and which of these is to blame need not be asked again. In a small model such a part is
        one by chance.
        """
        largest = self._oracle.best_passing(region)
        failing = self._oracle.smallest_failing(region, largest) if not self._universe.is_small else None
        if failing is None or len(self.atoms.of_units(failing & ~largest)) < 2:
            return largest
        parts = (passing & region for passing in self._oracle.passing)
        return next((part for part in parts if len(self.atoms.of_units(failing & ~part)) == 1), largest)

    def _passes(self, region: UnitSet) -> bool:
        """Whether the region passes by a probe of its own, which is asked where only a larger probe passed."""
        if not self._oracle.passes_within(region):
            return False
        if not self._oracle.ask(region, english("a remainder"), sure=True).passed:
            self._state.contradicted |= region
        return True

    def _put_back(self, region: UnitSet, passing: UnitSet) -> bool:
        """Ask the passing set with all units like one that fails alone and has passed among others; True if one passes.

        First all places of a group that passed together, then units in the same direct context, then those with the
        same neighbourhood, then the whole variant.
        """
        universe = self._universe
        if self._state.capacity or not self._state.only_alone:
            return False
        doubted = union(universe.variant_members[variant] for variant in self._state.only_alone)
        for group in passed_together(universe, self._oracle.passing, doubted, region):
            places = union(map(of, occurrences(universe, group))) & region
            if (
                places & ~passing
                and self._oracle.ask(passing | places, english("all places of ops that passed together")).passed
            ):
                return True
        for context in (universe.op_surroundings, universe.neighbourhoods, universe.variant):
            passed = {
                (variant, context[unit])
                for variant in self._state.only_alone
                for unit in members(universe.variant_members[variant] & self._oracle.exonerated)
            }
            alike = of(
                unit
                for variant in self._state.only_alone
                for unit in members(universe.variant_members[variant] & region)
                if (variant, context[unit]) in passed
            )
            if (
                alike & ~passing
                and self._oracle.ask(passing | alike, english("all places that look like one that passed")).passed
            ):
                return True
        return False

    def _step(self, region: UnitSet, passing: UnitSet, covered: UnitSet, pool: list[Atom]) -> Suspect | None:
        """Ask the most informative probe. Returns a suspect, or None if the new verdicts call for a new decision."""
        failing = self._oracle.smallest_failing(region, passing)
        group = [atom for atom in pool if failing is not None and atom.units & failing]
        if failing is not None:
            group = [Atom(atom.units & failing, atom.variant) for atom in group]
        beliefs = self.atoms.beliefs(covered, pool, group)
        chances = dict(zip(pool, beliefs.chance(pool, [a for a in pool if a.units & (failing or 0)]), strict=True))
        self._state.surprise = beliefs.surprise(pool)
        self._state.open, self._state.passing = pool, passing
        # a unit of its variant passed among others, but none of these units did
        only_here = (atom for atom in pool if atom.variant in self._state.only_alone)
        doubtful = next((atom for atom in only_here if not atom.units & self._oracle.exonerated), None)
        if doubtful is not None and not self._state.capacity:
            return self._where_it_stands(doubtful, region, passing)
        if self._brief and failing is not None and self._oracle.has_wrong_numbers(failing):
            near = self.atoms.named.interacting(region, self.minimiser.fails)
            if 1 < size(near) <= _FEW_NAMED:
                return self._suspect(near)
        doubted = self._universe.doubted
        hot = [atom for atom in pool if chances[atom] >= HOT or not atom.units & ~doubted]
        hot = [atom for atom in hot if not self.atoms.tried(atom)]
        interacting = self._is_interaction_likely(group, beliefs)
        if hot and not interacting:
            self._ask_hot(hot, region, passing, pool, beliefs)
            return None
        for atom in pool:
            if atom.units & self.atoms.named.nodes and self.atoms.is_fine_elsewhere(atom):
                # Ask a unit of each context inside the model: the log names the atom, and it passes elsewhere.
                if size(atom.units) > 1 and not self._state.split.get(atom.variant):
                    self.atoms.take_apart(atom)
                    return None
                return self._where_it_stands(atom, region, passing)
        if near := self.atoms.named.interacting(region, self.minimiser.fails):
            return self.narrowed(near, region)
        if failing is not None and len(group) == 1:
            return self._leaf(group[0], region, passing, failing)
        # Atoms that passed alone can fail only in an interaction, so they come last.
        candidates = sorted(
            group or pool,
            key=lambda atom: (
                self.atoms.tried(atom),
                size(self._oracle.probe(atom.units) & ~atom.units),
                0.0 if self.atoms.chosen_to_pass else self.atoms.weight(atom),
                lowest(atom.units),
            ),
        )
        untried = [atom for atom in group if not self.atoms.tried(atom)]
        if 1 <= len(untried) <= 2 and not interacting:
            # One of them is to blame, so the probe of it alone also confirms it.
            self.atoms.ask_alone(max(untried, key=lambda atom: (self.atoms.weight(atom), -lowest(atom.units))))
        else:
            self._ask_group(candidates, passing, beliefs, failing=bool(group), interacting=interacting)
        return None

    def _is_interaction_likely(self, group: Sequence[Atom], beliefs: BlameOdds) -> bool:
        """Whether the atoms of a failing group would probably pass alone, and their logs would name nothing.

        Not where all of them are in doubt: each of those is asked alone.
        """
        if not units_of(group) & ~self._universe.doubted:
            return False
        if len(group) < 2 or self._state.capacity or self._universe.required_producers or self.atoms.named.informative:
            return False
        return beliefs.interaction(group) >= LIKELY

    def _where_it_stands(self, atom: Atom, region: UnitSet, passing: UnitSet) -> Suspect | None:
        """Ask one unit of the atom together with the passing set, unless it failed with its neighbours there."""
        one = 1 << lowest(atom.units)
        near = self._universe.ball(one, REACH, passing | one)
        if any(is_subset(near, failing) and is_subset(failing, passing | one) for failing in self._oracle.failing):
            return self._alone_or_with(atom, region, passing)
        together = self._oracle.ask(
            passing | one, english("{say} with everything that passed", say=self.atoms.say(atom))
        )
        if together.failed:
            return self._alone_or_with(atom, region, passing)
        if not together.passed:
            self._state.unresolved |= one
        return None

    def _alone_or_with(self, atom: Atom, region: UnitSet, passing: UnitSet) -> Suspect | None:
        """Decide about the atom's first unit, which fails with the passing set: a culprit alone or with others."""
        unit = lowest(atom.units)
        probe = alone(self._universe, unit)
        near = self._universe.ball(1 << unit, REACH, passing | 1 << unit)
        if atom.variant in self._state.only_alone and size(near) < size(passing):
            self._oracle.ask(near, english("{say} with its neighbours", say=self.atoms.say(atom)))
        exonerated = self._oracle.exonerated >> unit & 1
        if not exonerated and self._oracle.ask(probe, english("{say} alone", say=self.atoms.say(atom))).failed:
            around = self._universe.op_surroundings
            alike = self._universe.variant_members[atom.variant] & region & ~self._oracle.exonerated
            places = tuple((other,) for other in members(alike) if around[other] == around[unit])
            return Suspect(units=1 << unit, fails=self._oracle.probe(probe), occurrences=places)
        known = self._oracle.look(probe)
        evidence = self._oracle.smallest_passing(1 << unit, passing | 1 << unit)
        if evidence and known is not None and known.failed:
            # It fails alone, so what makes it fail shows only beside the units that make it pass.
            spoiling = None if atom.variant in self._contested else self.minimiser.spoiling(evidence, passing)
            if spoiling is not None:
                return self._suspect(1 << unit | spoiling)
            self._contested.add(atom.variant)
            return Suspect(
                units=1 << unit,
                fails=self._oracle.probe(probe),
                occurrences=((unit,),),
                contested=True,
                context=passing,
                blame=passing | 1 << unit,
                verified=True,
            )
        return self._suspect(self._around(1 << unit, passing, region))

    def _ask_hot(
        self, hot: list[Atom], region: UnitSet, passing: UnitSet, pool: list[Atom], beliefs: BlameOdds
    ) -> None:
        questions: list[Question] = [
            (self.atoms.alone(atom), english("{say} alone", say=self.atoms.say(atom))) for atom in hot
        ]
        rest = [atom for atom in pool if atom not in hot]
        if rest and not self._state.capacity:
            if self.atoms.named.informative:
                questions.append((region & ~units_of(hot), english("the model without the suspects")))
            else:
                rest.sort(key=lambda atom: (self.atoms.weight(atom), lowest(atom.units)))
                chosen = units_of(rest[: beliefs.even_split(rest, failing=False)])
                questions.append((passing | chosen, english("a group of ops that is expected to compile")))
        self._oracle.ask_all([(units, why) for units, why in questions if not self._oracle.passes_within(units)])

    def _ask_group(
        self, candidates: Sequence[Atom], passing: UnitSet, beliefs: BlameOdds, *, failing: bool, interacting: bool
    ) -> None:
        """Ask the passing set with more atoms.

        All that are left, where logs name ops, or where interactions explain what failed so far: then there may be no
        bad atom. A single untried atom is asked alone instead, unless an interaction is likely (`interacting`).
        """
        suspects = self._state.suspects
        explained = bool(suspects) and all(suspect.interaction for suspect in suspects)
        if not failing and (self.atoms.named.informative or explained) and not self._state.capacity:
            count = len(candidates)
        else:
            if self.atoms.chosen_to_pass:  # neighbours fail together, and any two of them as likely
                count = (len(candidates) + 1) // 2
            else:
                count = beliefs.joint_split(candidates) if interacting else beliefs.even_split(candidates, failing)
            while (
                count
                and self._universe.required_producers
                and self._oracle.look(passing | units_of(candidates[:count])) is not None
            ):
                count -= 1  # with its required producers it is a probe already asked
        if not count:
            self.atoms.take_apart(max(candidates, key=lambda atom: size(atom.units)))
            return
        if self._state.capacity:
            room = size(self._state.capacity) // 2
            while count > 1 and size(units_of(candidates[:count])) > room:
                count -= 1
        chosen = candidates[:count]
        untried = [atom for atom in chosen if not self.atoms.tried(atom)]
        if len(untried) == 1 and count < len(candidates) and not interacting:
            self.atoms.ask_alone(untried[0])
            return
        group = units_of(chosen)
        why = english("1 more unit that is expected to compile")
        if size(group) > 1:
            why = english("{size} more units that are expected to compile", size=size(group))
        self._oracle.ask(passing | group, why)

    def _leaf(self, atom: Atom, region: UnitSet, passing: UnitSet, failing: UnitSet) -> Suspect | None:
        """Decide about the one atom left that fails with the passing set, as the probe `failing` shows."""
        if not self.atoms.asked(atom):
            self.atoms.ask_alone(atom)
            return None
        verdict = self._oracle.look(failing)
        if verdict is None or not verdict.failed:  # probes with this atom get no answer
            if size(atom.units) > 1:
                self.atoms.take_apart(atom)
            else:
                self._state.unresolved |= atom.units
            return None
        passing &= failing
        if atom.variant in self._state.only_alone:
            # It passes elsewhere, so it is to blame only where it fails in context.
            if size(atom.units) == 1:
                return self._alone_or_with(atom, region, passing)
            self.atoms.take_apart(atom)
            return None
        why = english("{say} with what passed", say=self.atoms.say(atom))
        if self._rests_on_one_answer(failing, region) and not self._oracle.ask(failing, why, again=True).failed:
            return None
        return self._suspect(self._around(atom.units, passing, region))

    def _rests_on_one_answer(self, failing: UnitSet, region: UnitSet) -> bool:
        """Whether no other probe without a known culprit failed.

        One false refusal would cost a search for an interaction that there is not.
        """
        return failing != self._universe.everything and not any(
            other != failing and is_subset(other, region) and not self._oracle.passes_within(other)
            for other in self._oracle.failing
        )

    def narrowed(self, failing: UnitSet, region: UnitSet) -> Suspect | None:
        """A suspect inside a failing set; pieces of the same size for comparison are taken from `region`."""
        return self._suspect(self.minimiser.narrow(failing, self.atoms.named.units, region))

    def _suspect(self, minimal: UnitSet) -> Suspect | None:
        """The suspect of a minimal failing set; None if it gets no answer, or passes when asked again.

        Raises CapacityError if the number of its units is to blame.
        """
        if size(minimal) > 1:
            answer = self._oracle.ask(minimal, english("an interaction"), sure=True)
            if answer.failed and (part := self._part_that_fails(minimal)):
                return self._suspect(part)
            if not answer.failed:
                if not answer.passed:
                    self._state.unresolved |= minimal
                return None
            if pool := limited_pool(self._universe, minimal, self.minimiser.fails):
                return Suspect(
                    units=minimal, fails=self._oracle.probe(minimal), occurrences=choices(minimal, pool), pool=pool
                )
            if are_too_many(self._universe, self._oracle, self._state.suspects, minimal, self.minimiser.fails):
                raise CapacityError(minimal)
            places = occurrences(self._universe, minimal)
            return Suspect(units=minimal, fails=self._oracle.probe(minimal), occurrences=places)
        unit = lowest(minimal)
        variant = self._universe.variant[unit]
        self._state.split.setdefault(variant, 1)
        alike = Atom(minimal | identical(self._universe, minimal) & ~self._oracle.exonerated, variant)
        if not self._oracle.ask(self.atoms.alone(alike), english("{say} alone", say=self.atoms.say(alike))).failed:
            self._state.unresolved |= alike.units
            return None
        return self._single(alike)

    def _around(self, units: UnitSet, passing: UnitSet, region: UnitSet) -> UnitSet:
        """A minimal failing subset of the units and a passing set, which fail together while each passes."""
        found = [suspect.units for suspect in self._state.suspects if suspect.interaction]
        # A compiler that refuses ops far from each other mostly does so again.
        far = any(len(self._universe.components(one)) > 1 for one in found)
        return self.minimiser.around(units, passing, self.atoms.named.units, region, far=far)

    def _part_that_fails(self, minimal: UnitSet) -> UnitSet:
        """A part without one unit that fails when rechecked; 0 if there is none or one answer is enough."""
        if not self._oracle.rechecks:
            return 0
        parts = self.minimiser.parts(minimal)
        answers = self._oracle.ask_all(((part, english("a part of an interaction")) for part in parts), sure=True)
        return next((part for part, answer in zip(parts, answers, strict=True) if answer.failed), 0)

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

    def _single(self, atom: Atom) -> Suspect:
        """The suspect of an atom that fails alone."""
        unit = representative(self._universe, atom.units)
        if not self._state.split.get(atom.variant):
            atom = Atom(self._alike(unit) & ~self._oracle.exonerated, atom.variant)
        self.atoms.guilty.append(atom)
        return Suspect(
            units=1 << unit,
            fails=self._oracle.probe(alone(self._universe, unit)),
            occurrences=tuple((other,) for other in members(atom.units)),
        )
