"""Blame in context: what separates a culprit from an artefact of cutting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import Occurrence, neighbours
from onnxbisect.search.pattern import alone as alone_probe
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

#: How many steps of dataflow around a suspect are its context. GELU and attention written out lie within, and layer
#: normalisation up to its last Add.
REACH = 4
#: How many steps show whether an op belongs to a fused pattern.
PATTERN = 3


@dataclass(frozen=True)
class Confirmation:
    """The suspects once their questions are answered: standing, narrowed to fewer occurrences, or cleared."""

    suspects: tuple[Suspect, ...]
    narrowed: tuple[Suspect, ...]
    cleared: tuple[Suspect, ...]


class Confirmer:
    """Asks for every suspect, all at once, what would clear it."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle
        self._doubted: set[int] = set()

    def confirm(self, suspects: Sequence[Suspect], remainder: UnitSet, doubted: set[int]) -> Confirmation:
        """Put every suspect back into its context, and ask about its other occurrences.

        The context is what the remainder has within `REACH` steps: compilers fuse what is close, and a probe that
        ends there is small, and known again after the model was changed elsewhere. Where any variant
        is in `doubted`, being fine in some context, the compiler is not monotone, and the whole remainder is taken.
        """
        self._doubted = doubted
        others = {suspect: self._occurrences_to_ask(suspect) for suspect in suspects}
        elsewhere = {suspect: self._other_contexts(suspect, remainder) for suspect in suspects}
        questions: list[Question] = []
        blames: dict[Suspect, UnitSet] = {}
        for suspect in suspects:
            if suspect.capacity or suspect.blame is not None:
                continue
            context = self._context(suspect.units, remainder)
            by_words = not elsewhere[suspect]
            blames[suspect] = self._blamed(suspect, remainder, context, by_words) or context | suspect.units
            questions.append((blames[suspect], f"{self._say(suspect)} back in its context"))
            questions.append((suspect.fails, f"{self._say(suspect)} alone"))
        together = self._together(suspects, remainder)
        questions += [(probe, "culprits that always stand together") for probe in dict.fromkeys(together.values())]
        for suspect in suspects:
            if elsewhere[suspect]:
                questions.append((elsewhere[suspect], f"{self._say(suspect)} in all its other contexts"))
            for probe in others[suspect].values():
                questions.append((probe, f"another place of {self._say(suspect)}"))
        self._oracle.ask_all(questions, sure=True)

        standing: list[Suspect] = []
        narrowed: list[Suspect] = []
        cleared: list[Suspect] = []
        for suspect in suspects:
            failing = tuple(
                occurrence
                for occurrence in suspect.occurrences
                if occurrence not in others[suspect] or self._failed(others[suspect][occurrence])
            )
            if len(failing) < len(suspect.occurrences):
                narrowed.append(replace(suspect, occurrences=failing))
                continue
            doubts = (blames.get(suspect), elsewhere[suspect], together.get(suspect))
            excuses = [probe for probe in doubts if probe and self._passed(probe)]
            if excuses:
                # A superset of a failing set that passes: both are asked again before anything rests on it.
                self._oracle.ask(suspect.fails, f"{self._say(suspect)} alone", again=True)
                if self._oracle.ask(excuses[0], "a contradiction", again=True).passed:
                    cleared.append(suspect)
                    continue
            if suspect in blames and self._failed(blames[suspect]):
                suspect = replace(suspect, context=remainder, blame=blames[suspect])
            standing.append(replace(suspect, verified=True))
        return Confirmation(tuple(standing), tuple(narrowed), tuple(cleared))

    def _other_contexts(self, suspect: Suspect, remainder: UnitSet) -> UnitSet:
        """A probe of a single suspect's op in other direct contexts than its own, 0 where there is no need.

        Where a model repeats a context, compilers may have a fused pattern for it; what fails in one context may
        then be fine in another. One unit stands for each; contexts that hardly repeat are taken to be alike.
        """
        if suspect.verified or size(suspect.units) != 1:
            return 0
        contexts: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for unit in members(suspect.everywhere):
            contexts.setdefault(self._ops_around(unit), []).append(unit)
        most = max(len(units) for units in contexts.values())
        if most == 1 or most * 4 < len(suspect.occurrences):
            return 0
        own = self._ops_around(lowest(suspect.units))
        others = of(units[0] for context, units in contexts.items() if context != own)
        return self._near(others, remainder, PATTERN) | others if others else 0

    def _together(self, suspects: Sequence[Suspect], remainder: UnitSet) -> dict[Suspect, UnitSet]:
        """For single suspects that stand near each other wherever they occur, a probe with all of them put back.

        Such ops may be parts of one fused pattern, which was masked in one go: then each fails without the rest.
        """
        left = [suspect for suspect in suspects if size(suspect.units) == 1 and not suspect.verified]
        found: dict[Suspect, UnitSet] = {}
        while left:
            company = [left.pop(0)]
            for member in company:
                joining = [one for one in left if self._always_near(member, one) and self._always_near(one, member)]
                company += joining
                left = [one for one in left if one not in joining]
            if len(company) > 1:
                everywhere = 0
                for member in company:
                    everywhere |= member.everywhere
                group = company[0].units
                for _ in company:
                    group |= self._steps(group, 2) & everywhere
                found |= dict.fromkeys(company, self._near(group, remainder, PATTERN) | group)
        return found

    def _always_near(self, one: Suspect, other: Suspect) -> bool:
        return all(self._steps(1 << unit, 2) & other.everywhere for unit in members(one.everywhere))

    def _steps(self, units: UnitSet, steps: int) -> UnitSet:
        for _ in range(steps):
            units |= neighbours(self._universe, units)
        return units

    def _ops_around(self, unit: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        universe = self._universe
        before = sorted(universe.op[other] for other in members(universe.predecessors[unit]))
        after = sorted(universe.op[other] for other in members(universe.successors[unit]))
        return tuple(before), tuple(after)

    def _passed(self, probe: UnitSet) -> bool:
        verdict = self._oracle.look(self._oracle.probe(probe))
        return verdict is not None and verdict.passed

    def _failed(self, probe: UnitSet) -> bool:
        verdict = self._oracle.look(self._oracle.probe(probe))
        return verdict is not None and verdict.failed

    def _occurrences_to_ask(self, suspect: Suspect) -> dict[Occurrence, UnitSet]:
        """The probe for each occurrence that is not the one already asked; identical ones share a probe."""
        if suspect.capacity or suspect.verified:
            return {}
        probes: dict[Occurrence, UnitSet] = {}
        for occurrence in suspect.occurrences:
            units = of(occurrence)
            probe = alone_probe(self._universe, occurrence[0]) if len(occurrence) == 1 else units
            if probe != suspect.fails and units != suspect.units:
                probes[occurrence] = probe
        return probes

    def _context(self, units: UnitSet, remainder: UnitSet) -> UnitSet:
        """The part of the remainder that is put around a suspect's units."""
        if self._doubted:
            return remainder
        near = self._near(units, remainder, REACH)
        return remainder if size(near) * 2 > size(remainder) else near

    def _near(self, units: UnitSet, remainder: UnitSet, steps: int) -> UnitSet:
        near = units
        for _ in range(steps):
            near |= neighbours(self._universe, near) & remainder
        return near & remainder

    def _blamed(self, suspect: Suspect, remainder: UnitSet, context: UnitSet, by_words: bool) -> UnitSet | None:
        """A failing probe on record that blames the suspect in context already.

        Either it holds the context, and beyond the remainder nothing but occurrences that stand in the same
        direct context as the suspect; or the compiler said there, in the words it has for the suspect alone, what
        it no longer said once the suspect was masked, and some occurrence has no other culprit beside it that could
        have drawn it in.
        """
        most = remainder | self._alike(suspect)
        for failing in self._oracle.failing:
            if is_subset(context | suspect.units, failing) and is_subset(failing, most):
                return failing
        alone = self._oracle.look(suspect.fails)
        if not by_words or alone is None or not alone.fingerprint or not alone.hints:
            return None
        words = self._words(alone)
        for failing in self._oracle.failing:
            verdict = self._oracle.look(failing)
            without = self._oracle.look(failing & ~suspect.everywhere)
            if (
                verdict is not None
                and is_subset(remainder, failing)
                and self._words(verdict) == words
                and without is not None
                and self._words(without) != words
                and self._stands_apart(suspect, failing & ~remainder & ~suspect.everywhere)
            ):
                return failing
        return None

    def _words(self, verdict: Verdict) -> tuple[str, frozenset[str]]:
        """What a compiler said, and of which ops: some say the same of every node but its name."""
        universe = self._universe
        named = (*verdict.hints.nodes, *verdict.hints.tensors)
        ops = {universe.op[universe.unit_by_name[name]] for name in named if name in universe.unit_by_name}
        return verdict.fingerprint, frozenset(ops or verdict.hints.ops)

    def _alike(self, suspect: Suspect) -> UnitSet:
        """The units of all occurrences with the same direct context as the suspect."""
        around = self._universe.surroundings
        context = [around[unit] for unit in members(suspect.units)]
        return of(
            unit
            for occurrence in suspect.occurrences
            if [around[other] for other in occurrence] == context
            for unit in occurrence
        )

    def _stands_apart(self, suspect: Suspect, others: UnitSet) -> bool:
        return any(not neighbours(self._universe, of(occurrence)) & others for occurrence in suspect.occurrences)

    def _say(self, suspect: Suspect) -> str:
        ops = [self._universe.op[unit] for unit in members(suspect.units)]
        return " + ".join(ops) if size(suspect.units) <= 4 else f"{len(ops)} units"
