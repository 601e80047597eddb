"""Blame in context: what separates a culprit from a failure that cutting made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxbisect.search.context import (
    FEW_NEAR,
    FEW_UNITS,
    NEAR,
    PATTERN,
    REACH,
    clusters,
    every_way,
    neighbours_kept,
    other_contexts,
    place_with_most_neighbours,
)
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import Occurrence
from onnxbisect.search.pattern import alone as alone_probe
from onnxbisect.search.places import is_named, named, refused_by_name
from onnxbisect.search.suspect import Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe


@dataclass(frozen=True)
class Confirmation:
    """The suspects once their questions are answered: standing, narrowed to fewer occurrences, or cleared.

    `unanswered` are units of occurrences of which it is not known whether they fail.
    """

    suspects: tuple[Suspect, ...]
    narrowed: tuple[Suspect, ...]
    cleared: tuple[Suspect, ...]
    unanswered: UnitSet


@dataclass(frozen=True)
class _Case:
    """A suspect and what is asked about it.

    Put back into `remainder` it is the probe `blame` (None where that is settled). A probe of `neighbourhood` that
    passes is evidence that the suspect is not to blame. Where the compiler names what it refuses, `where_it_stands` is
    the suspect with all that is near it; empty where a log has named the suspect in such a probe.
    """

    suspect: Suspect
    remainder: UnitSet
    blame: UnitSet | None
    neighbourhood: tuple[Question, ...]
    where_it_stands: UnitSet | None
    others: dict[Occurrence, UnitSet]


class Confirmer:
    """Asks for every suspect, all at once, what would clear it."""

    def __init__(self, universe: Universe, oracle: Oracle) -> None:
        self._universe = universe
        self._oracle = oracle
        self._small = len(universe) <= FEW_UNITS

    def confirm(self, suspects: Sequence[Suspect], remainders: Sequence[UnitSet], doubted: set[int]) -> Confirmation:
        """Put every suspect back into its context, ask what could clear it, and about its other occurrences.

        The context is what a remainder has within `REACH` steps: compilers fuse what is close, and a probe that
        ends there is small, and known again after the model was changed elsewhere. Of several remainders it is the
        one that keeps most of what stands beside the suspect. Where any variant is in `doubted`, being fine in some
        context, the compiler is not monotone: then the whole remainder is taken.
        """
        cases = [self._case(suspect, suspects, remainders, doubted) for suspect in suspects]
        self._oracle.ask_all(self._questions(cases), sure=True, firm=True)
        for case in cases:
            self._seek_excuse(case)

        standing: list[Suspect] = []
        narrowed: list[Suspect] = []
        cleared: list[Suspect] = []
        unanswered = 0
        for case in cases:
            suspect = case.suspect
            failing = tuple(
                occurrence
                for occurrence in suspect.occurrences
                if occurrence not in case.others or self._failed(case.others[occurrence])
            )
            for probe in case.others.values():
                if not self._failed(probe) and not self._passed(probe):
                    unanswered |= probe
            if len(failing) < len(suspect.occurrences):
                narrowed.append(replace(suspect, occurrences=failing))
            elif self._is_cleared(case):
                cleared.append(suspect)
            else:
                if case.blame is not None and self._failed(case.blame):
                    suspect = replace(suspect, context=case.remainder, blame=case.blame)
                standing.append(replace(suspect, verified=True))
        return Confirmation(tuple(standing), tuple(narrowed), tuple(cleared), unanswered)

    def _case(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainders: Sequence[UnitSet], doubted: set[int]
    ) -> _Case:
        if suspect.contested:
            return _Case(suspect, remainders[0], None, (), None, {})
        if suspect.capacity or suspect.pool:
            remainder = remainders[0]
            return _Case(replace(suspect, context=remainder, blame=suspect.fails), remainder, None, (), None, {})
        is_open = suspect.single and not suspect.verified
        by_name = is_named(self._universe, self._oracle, suspect)
        suspect, remainder = self._place(suspect, remainders, move=is_open, steps=PATTERN if by_name else NEAR)
        questions: list[Question] = []
        say = self._say(suspect)
        elsewhere: list[UnitSet] = []
        if is_open:
            if not self._named_everywhere(suspect):
                elsewhere = other_contexts(self._universe, suspect, remainder, all_of_them=bool(doubted))
            questions += [(probe, f"{say} in other contexts") for probe in elsewhere]
            beside = clusters(self._universe, suspect, suspects, remainder)
            questions += [(probe, f"{say} with what is suspected beside it") for probe in beside]
        blame = None
        if suspect.blame is None:
            near = remainder if doubted else self._context(suspect.units, remainder)
            blame = self._blamed(suspect, suspects, remainder, near, by_words=by_name or not elsewhere)
            if blame is None:
                blame = self._without_others(near | suspect.units, suspect, suspects)
        if self._small and not suspect.verified and not by_name and not self._said_of_more(suspect):
            ways = every_way(self._universe, suspect, suspects, remainder)
            questions += [(probe, f"{say} in another context") for probe in ways]
        asked = tuple((probe, why) for probe, why in dict.fromkeys(questions) if probe != self._universe.everything)
        where_it_stands = self._where_it_stands(suspect, suspects, remainder) if is_open and by_name else None
        return _Case(suspect, remainder, blame, asked, where_it_stands, self._occurrences_to_ask(suspect))

    def _where_it_stands(self, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet) -> UnitSet:
        """The suspect with all that is near it, other suspects included; 0 where a log names it in such a probe."""
        universe = self._universe
        broken = union(other.everywhere for other in suspects if other.interaction or other.pool)
        if refused_by_name(universe, self._oracle, suspect.everywhere, broken):
            return 0
        if self._small:
            return universe.everything
        singles = union(other.everywhere for other in suspects if other.single)
        return universe.ball(suspect.units, REACH) & (remainder | singles & universe.ball(suspect.units, PATTERN))

    def _place(
        self, suspect: Suspect, remainders: Sequence[UnitSet], *, move: bool, steps: int
    ) -> tuple[Suspect, UnitSet]:
        """The suspect where it is asked about, and the remainder that it is put back into."""
        universe = self._universe
        if suspect.blame is not None and suspect.context is not None:
            return suspect, suspect.context
        if move:
            placed = [(place_with_most_neighbours(universe, suspect, it, steps), it) for it in remainders]
            unit, remainder = max(placed, key=lambda it: neighbours_kept(universe, it[0], it[1], steps))
            return replace(suspect, units=1 << unit), remainder
        around = universe.ball(suspect.units, 1)
        return suspect, max(remainders, key=lambda remainder: size(around & remainder))

    def _questions(self, cases: Sequence[_Case]) -> list[Question]:
        questions: list[Question] = []
        for case in cases:
            if case.blame is not None:
                say = self._say(case.suspect)
                questions += [(case.blame, f"{say} back in its context"), (case.suspect.fails, f"{say} alone")]
        for case in cases:
            questions += [(probe, f"another place of {self._say(case.suspect)}") for probe in case.others.values()]
        return list(dict.fromkeys(questions))

    def _seek_excuse(self, case: _Case) -> None:
        """Ask for a context in which the suspect passes, until one does or all fail, or the log settles it."""
        if self._is_cleared(case) or (case.where_it_stands is not None and self._is_settled_by_name(case)):
            return
        for probe, why in case.neighbourhood:
            if self._passes(probe, why):
                return

    def _passes(self, probe: UnitSet, why: str) -> bool:
        passed = self._oracle.ask(probe, why, sure=True).passed
        if passed:
            # Everything that is concluded from it rests on this one answer.
            self._oracle.ask(probe, "a contradiction", again=True)
        return passed

    def _is_settled_by_name(self, case: _Case) -> bool:
        """Ask the suspect where it stands, without what the log names instead, until the log names it or it passes."""
        probe = case.where_it_stands
        for _ in range(8):
            if not probe or self._passes(probe, f"{self._say(case.suspect)} where it stands"):
                return True
            names = named(self._universe, self._oracle, probe)
            if not names or names & case.suspect.units:
                return bool(names)
            probe &= ~names
        return False

    def _is_cleared(self, case: _Case) -> bool:
        """Whether a probe that holds the suspect passes."""
        suspect = case.suspect
        if suspect.capacity or suspect.pool or suspect.contested:
            return False
        return self._oracle.passes_within(case.suspect.units)

    def _said_of_more(self, suspect: Suspect) -> bool:
        """Whether the compiler said of more that holds the suspect what it says of the suspect alone."""
        verdict = self._oracle.look(suspect.fails)
        if verdict is None or not verdict.fingerprint:
            return False
        larger = [failing for failing in self._oracle.failing if size(failing) > size(suspect.fails)]
        words = (self._oracle.look(failing) for failing in larger if suspect.held_by(failing))
        return any(said is not None and said.fingerprint == verdict.fingerprint for said in words)

    def _named_everywhere(self, suspect: Suspect) -> bool:
        """Whether a log has named every place of it in one probe."""
        return any(is_subset(suspect.everywhere, self._oracle.named_in(failing)) for failing in self._oracle.failing)

    def _passed(self, probe: UnitSet) -> bool:
        verdict = self._oracle.look(self._oracle.probe(probe))
        return verdict is not None and verdict.passed

    def _failed(self, probe: UnitSet) -> bool:
        verdict = self._oracle.look(self._oracle.probe(probe))
        return verdict is not None and verdict.failed

    def _occurrences_to_ask(self, suspect: Suspect) -> dict[Occurrence, UnitSet]:
        """The probe for each occurrence that is not the one already asked; identical ones share a probe."""
        if suspect.verified:
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
        around = self._universe.ball(units, REACH, remainder | units) & remainder
        return remainder if size(around) * 2 > size(remainder) else around

    def _without_others(self, probe: UnitSet, suspect: Suspect, suspects: Sequence[Suspect]) -> UnitSet:
        """The probe without what completes another culprit, or this one at another place."""
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

    def _blamed(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet, context: UnitSet, *, by_words: bool
    ) -> UnitSet | None:
        """A failing probe on record that blames the suspect in context already.

        Either it holds the context, and beyond the remainder nothing but occurrences of it whose neighbourhood looks
        like the suspect's; or the compiler said there, in the words it has for the suspect alone, what it no longer
        said once the suspect was masked, all occurrences that it may have meant look alike, and one has no other
        culprit beside it that could have drawn it in.
        """
        most = remainder | self._alike(suspect)
        if not suspect.single:
            context = self._without_others(context | suspect.units, suspect, suspects)
        for failing in self._oracle.failing:
            if is_subset(context | suspect.units, failing) and is_subset(failing, most):
                return failing
        alone = self._oracle.look(suspect.fails)
        if not by_words or alone is None or not alone.fingerprint or not alone.hints:
            return None
        words = self._words(suspect.fails)
        holding = [failing for failing in self._oracle.failing if is_subset(remainder, failing)]
        if all(failing & suspect.everywhere or self._words(failing) == words for failing in holding):
            return None
        for failing in holding:
            others = failing & ~remainder & ~suspect.everywhere
            meant = self._oracle.named_in(failing) & suspect.everywhere or failing & suspect.everywhere
            alike = len({self._universe.neighbourhoods[unit] for unit in members(meant)}) == 1
            if self._words(failing) == words and alike and self._stands_apart(suspect, others):
                return failing
        return None

    def _words(self, failing: UnitSet) -> tuple[str, frozenset[str]] | None:
        """What a compiler said, and of which ops: some say the same of every node but its name."""
        verdict = self._oracle.look(failing)
        if verdict is None:
            return None
        ops = {self._universe.op[unit] for unit in members(self._oracle.named_in(failing))}
        return verdict.fingerprint, frozenset(ops or verdict.hints.ops)

    def _alike(self, suspect: Suspect) -> UnitSet:
        """The units of all occurrences with the same neighbourhood as the suspect; of several units only its own."""
        if not suspect.single:
            return suspect.units
        around = self._universe.neighbourhoods
        own = around[lowest(suspect.units)]
        return of(unit for (unit,) in suspect.occurrences if around[unit] == own)

    def _stands_apart(self, suspect: Suspect, others: UnitSet) -> bool:
        return any(not self._universe.neighbours(of(occurrence)) & others for occurrence in suspect.occurrences)

    def _say(self, suspect: Suspect) -> str:
        ops = [self._universe.op[unit] for unit in members(suspect.units)]
        return " + ".join(ops) if size(suspect.units) <= 4 else f"{len(ops)} units"
