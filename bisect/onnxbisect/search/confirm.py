"""Blame in context: what separates a culprit from an artefact of cutting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import Occurrence, neighbours
from onnxbisect.search.pattern import alone as alone_probe
from onnxbisect.search.suspect import Artefact, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Verdict

#: How many steps of dataflow around a suspect are its context. The longest patterns that compilers are known to
#: fuse, layer normalisation and attention written out, are shorter.
REACH = 8


@dataclass(frozen=True)
class Confirmation:
    """The suspects once their questions are answered: confirmed, narrowed to fewer occurrences, or cleared."""

    suspects: tuple[Suspect, ...]
    artefacts: tuple[Suspect, ...]
    flukes: tuple[Suspect, ...]
    narrowed: tuple[Suspect, ...]


class Confirmer:
    """Asks for every suspect, all at once, what would clear it."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle
        self._doubted: set[int] = set()

    def confirm(self, suspects: Sequence[Suspect], remainder: UnitSet, doubted: set[int]) -> Confirmation:
        """Put every suspect back into its context, and ask about its other occurrences.

        The context is what the remainder has within `REACH` steps: compilers fuse what is close, and a probe that
        ends there is small, and known again after the model was changed elsewhere. A suspect whose variant is in
        `doubted`, being fine in some context, is put back into the whole remainder.
        """
        self._doubted = doubted
        others = {suspect: self._occurrences_to_ask(suspect) for suspect in suspects}
        questions: list[Question] = []
        blames: dict[Suspect, UnitSet] = {}
        for suspect in suspects:
            if suspect.capacity or suspect.blame is not None:
                continue
            context = self._context(suspect, remainder)
            blames[suspect] = self._blamed(suspect, remainder, context) or context | suspect.units
            questions.append((blames[suspect], f"{self._say(suspect)} back in its context"))
            questions.append((suspect.fails, f"{self._say(suspect)} alone"))
        for suspect in suspects:
            for probe in others[suspect].values():
                questions.append((probe, f"another place of {self._say(suspect)}"))
        self._oracle.ask_all(questions, sure=True)

        confirmed: list[Suspect] = []
        artefacts: list[Suspect] = []
        flukes: list[Suspect] = []
        narrowed: list[Suspect] = []
        for suspect in suspects:
            failing = tuple(
                occurrence
                for occurrence in suspect.occurrences
                if occurrence not in others[suspect] or self._failed(others[suspect][occurrence])
            )
            if len(failing) < len(suspect.occurrences):
                narrowed.append(replace(suspect, occurrences=failing))
                continue
            if suspect in blames and not self._failed(blames[suspect]):
                verdict = self._oracle.ask(suspect.fails, f"{self._say(suspect)} alone", again=True)
                again = self._oracle.ask(blames[suspect], "a contradiction", again=True)
                if not again.failed:
                    (artefacts if verdict.failed else flukes).append(suspect)
                    continue
            if suspect in blames:
                suspect = replace(suspect, context=remainder, blame=blames[suspect])
            confirmed.append(replace(suspect, verified=True))
        return Confirmation(tuple(confirmed), tuple(artefacts), tuple(flukes), tuple(narrowed))

    def surroundings_that_pass(self, suspect: Suspect) -> Artefact:
        """The smallest group around an artefact that was seen to pass: its neighbours, or theirs too."""
        group = suspect.units
        for _ in range(2):
            around = neighbours(self._universe, group)
            if not around:
                break
            group |= around
            if self._oracle.ask(group, f"{self._say(suspect)} with what surrounds it").passed:
                return Artefact(units=suspect.units, occurrences=suspect.occurrences, passes_with=group)
        return Artefact(units=suspect.units, occurrences=suspect.occurrences)

    def _failed(self, probe: UnitSet) -> bool:
        verdict = self._oracle.look(probe)
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

    def _context(self, suspect: Suspect, remainder: UnitSet) -> UnitSet:
        """The part of the remainder that is put around the suspect."""
        if self._universe.variant[lowest(suspect.units)] in self._doubted:
            return remainder
        near = suspect.units
        for _ in range(REACH):
            near |= neighbours(self._universe, near) & remainder
        return remainder if size(near) * 2 > size(remainder) else near & remainder

    def _blamed(self, suspect: Suspect, remainder: UnitSet, context: UnitSet) -> UnitSet | None:
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
        if alone is None or not alone.fingerprint or not alone.hints:
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
