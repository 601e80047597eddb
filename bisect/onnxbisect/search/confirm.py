"""Blame in context: what separates a culprit from an artefact of cutting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxbisect.search.excuses import (
    FEW_CONTEXTS,
    company,
    near,
    other_contexts,
    pairs,
    placed,
    together,
    without_a_neighbour,
)
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


@dataclass(frozen=True)
class Confirmation:
    """The suspects once their questions are answered: standing, narrowed to fewer occurrences, or cleared."""

    suspects: tuple[Suspect, ...]
    narrowed: tuple[Suspect, ...]
    cleared: tuple[Suspect, ...]


@dataclass(frozen=True)
class _Case:
    """A suspect and what is asked about it: put back into `remainder` it is the probe `blame` (None where that is
    settled). Any of `excuses` that passes clears it; one of `doubts` that passes only leaves it unconfirmed.
    """

    suspect: Suspect
    remainder: UnitSet
    blame: UnitSet | None
    excuses: tuple[Question, ...]
    doubts: tuple[Question, ...]
    others: dict[Occurrence, UnitSet]


class Confirmer:
    """Asks for every suspect, all at once, what would clear it."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle

    def confirm(self, suspects: Sequence[Suspect], remainders: Sequence[UnitSet], doubted: set[int]) -> Confirmation:
        """Put every suspect back into its context, ask what could excuse it, and about its other occurrences.

        The context is what a remainder has within `REACH` steps: compilers fuse what is close, and a probe that
        ends there is small, and known again after the model was changed elsewhere. Of several remainders it is the
        one that keeps most of what stands beside the suspect. Where any variant is in `doubted`, being fine in some
        context, the compiler is not monotone: then the whole remainder is taken, and more could excuse.
        """
        places = [self._place(suspect, remainders) for suspect in suspects]
        singles = [suspect for suspect, _ in places if self._open(suspect)]
        groups = together(self._universe, singles, remainders[0])
        beside = pairs(self._universe, singles, remainders[0])
        cases = [
            self._case(suspect, remainder, doubted, groups.get(suspect), beside.get(suspect, []))
            for suspect, remainder in places
        ]
        self._oracle.ask_all(self._questions(cases), sure=True, firm=True)

        standing: list[Suspect] = []
        narrowed: list[Suspect] = []
        cleared: list[Suspect] = []
        for case in cases:
            suspect = case.suspect
            failing = tuple(
                occurrence
                for occurrence in suspect.occurrences
                if occurrence not in case.others or self._failed(case.others[occurrence])
            )
            if len(failing) < len(suspect.occurrences):
                narrowed.append(replace(suspect, occurrences=failing))
            elif self._excused(case):
                cleared.append(suspect)
            else:
                if case.blame is not None and self._failed(case.blame):
                    suspect = replace(suspect, context=case.remainder, blame=case.blame)
                standing.append(replace(suspect, verified=True))
        return Confirmation(tuple(standing), tuple(narrowed), tuple(cleared))

    def _open(self, suspect: Suspect) -> bool:
        """Whether it is a single op whose excuses are still to be asked about."""
        return size(suspect.units) == 1 and not suspect.verified and not suspect.capacity

    def _place(self, suspect: Suspect, remainders: Sequence[UnitSet]) -> tuple[Suspect, UnitSet]:
        """The suspect where it is asked about, and the remainder that it is put back into."""
        if suspect.capacity or suspect.blame is not None:
            return suspect, remainders[0]
        universe = self._universe
        if self._open(suspect):
            candidates = [(placed(universe, suspect, remainder), remainder) for remainder in remainders]
            return max(candidates, key=lambda it: company(universe, lowest(it[0].units), it[1]))
        around = neighbours(universe, suspect.units)
        return suspect, max(remainders, key=lambda remainder: size(around & remainder))

    def _case(
        self, suspect: Suspect, remainder: UnitSet, doubted: set[int], group: UnitSet | None, beside: list[UnitSet]
    ) -> _Case:
        say = self._say(suspect)
        excuses: list[Question] = []
        if group:
            excuses.append((group, "culprits that always stand together"))
        excuses += [(pair, f"{say} with another that is left out") for pair in beside]
        elsewhere = 0
        if self._open(suspect):
            elsewhere = self._elsewhere(suspect, remainder, bool(doubted))
        if elsewhere:
            excuses.append((elsewhere, f"{say} in all its other contexts"))
        blame = None
        doubts: list[Question] = []
        if not suspect.capacity and suspect.blame is None:
            context = remainder if doubted else self._context(suspect.units, remainder)
            blame = self._blamed(suspect, remainder, context, not elsewhere) or context | suspect.units
            if doubted and size(suspect.units) == 1:
                around = near(self._universe, suspect.units, remainder, REACH) | suspect.units
                without = without_a_neighbour(self._universe, suspect, around)
                taken_apart = self._universe.variant[lowest(suspect.units)] in doubted
                more = doubts if taken_apart else excuses
                more += [(probe, f"{say} without one of its neighbours") for probe in without]
        return _Case(suspect, remainder, blame, tuple(excuses), tuple(doubts), self._occurrences_to_ask(suspect))

    def _questions(self, cases: Sequence[_Case]) -> list[Question]:
        questions: list[Question] = []
        for case in cases:
            if case.blame is not None:
                say = self._say(case.suspect)
                questions += [(case.blame, f"{say} back in its context"), (case.suspect.fails, f"{say} alone")]
        for case in cases:
            questions += [*case.excuses, *case.doubts]
            questions += [(probe, f"another place of {self._say(case.suspect)}") for probe in case.others.values()]
        return list(dict.fromkeys(questions))

    def _excused(self, case: _Case) -> bool:
        """Whether a probe that holds the suspect passes: both are asked again before anything rests on it."""
        probes = [probe for probe, _ in case.excuses] + ([] if case.blame is None else [case.blame])
        passed = [probe for probe in probes if self._passed(probe)]
        if not passed:
            return False
        self._oracle.ask(case.suspect.fails, f"{self._say(case.suspect)} alone", again=True)
        return self._oracle.ask(passed[0], "a contradiction", again=True).passed

    def _elsewhere(self, suspect: Suspect, remainder: UnitSet, doubted: bool) -> UnitSet:
        """The suspect's op in its other contexts, unless a log has named it in every place already."""
        if any(is_subset(suspect.everywhere, self._oracle.named_in(failing)) for failing in self._oracle.failing):
            return 0
        contexts = {self._universe.surroundings[unit] for unit in members(suspect.everywhere)}
        few = len(contexts) <= FEW_CONTEXTS
        return other_contexts(self._universe, suspect, remainder, all_of_them=doubted or few)

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
        around = near(self._universe, units, remainder, REACH)
        return remainder if size(around) * 2 > size(remainder) else around

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
