"""Confirm suspects in context, to tell culprits from failures that cutting caused.

Where failing probes on record blame a suspect in its context already, nothing new is asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onnxbisect.language import english
from onnxbisect.search.context import (
    NEAR,
    PATTERN,
    REACH,
    clusters,
    computed_from,
    kinds_of_places,
    neighbours_kept,
    other_contexts,
    place_with_most_neighbours,
)
from onnxbisect.search.doubts import NamedContexts
from onnxbisect.search.excuses import open_context
from onnxbisect.search.oracle import Oracle, Question
from onnxbisect.search.pattern import alone as alone_probe
from onnxbisect.search.pattern import enough_to_show
from onnxbisect.search.places import (
    blamed_on_record,
    commonest_of_lists,
    is_about_others,
    is_named,
    is_named_for_itself,
    listed_apart,
    listed_beside,
    refused_by_name,
    rests_on_a_part,
    with_what_excuses_a_part,
    without_others,
)
from onnxbisect.search.state import Kin, Occurrence, Suspect, differing_in_constants, kin_among
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe


@dataclass(frozen=True)
class Confirmation:
    """The suspects after their probes: standing, narrowed to fewer occurrences, or cleared.

    `unanswered` are units of occurrences whose probe got no answer.
    """

    suspects: tuple[Suspect, ...]
    narrowed: tuple[Suspect, ...]
    cleared: tuple[Suspect, ...]
    unanswered: UnitSet


@dataclass(frozen=True)
class _Case:
    """A suspect and the probes that decide about it.

    `blame` is the suspect put back into `remainder`; None where that is already known. If a probe of `neighbourhood`
    passes, the suspect is not to blame. `others` are the probes of its other occurrences.
    """

    suspect: Suspect
    remainder: UnitSet
    blame: UnitSet | None
    neighbourhood: tuple[Question, ...]
    others: dict[Occurrence, UnitSet]


class Confirmer:
    """Asks, for all suspects at once, the probes that could clear them."""

    def __init__(self, universe: Universe, oracle: Oracle, *, brief: bool = False) -> None:
        self._universe = universe
        self._oracle = oracle
        self._brief = brief
        self._small = universe.is_small and not brief
        self._named = NamedContexts(universe, oracle, small=self._small)

    def confirm(self, suspects: Sequence[Suspect], remainders: Sequence[UnitSet], doubted: set[int]) -> Confirmation:
        """Put every suspect back into its context, ask what could clear it, and ask its other occurrences.

        The context is the part of a remainder within `REACH` steps: compilers fuse adjacent ops, and a small probe is
        found again after the model was changed elsewhere. Of several remainders, the one that keeps most of the
        suspect's neighbours is used. If a variant in `doubted` passes in some context, the compiler is not monotone,
        and the whole remainder is used.
        """
        for group in listed_apart(self._universe, self._oracle, suspects, remainders[0]):
            why = english("nodes that the log lists, without those next to them")
            self._oracle.ask(self._universe.ball(group, REACH) & remainders[0] | group, why, sure=True)
        kin = [] if self._small else kin_among(self._universe, suspects, doubted)
        later = {suspect for it in kin for suspect in it.others}
        commonest = commonest_of_lists(self._universe, self._oracle)
        for suspect in suspects:
            if suspect.single and not suspect.verified and self._universe.variant[lowest(suspect.units)] in commonest:
                # what it comes to decides whether the others of a list need probes of their own
                case = self._case(suspect, suspects, remainders, doubted)
                if case.blame is not None:
                    self._oracle.ask(
                        case.blame,
                        english("{say}, which the log lists, in its context", say=suspect.say(self._universe)),
                        sure=True,
                    )
        cases = {it: self._case(it, suspects, remainders, doubted) for it in suspects if it not in later}
        self._decide([*cases.values()])
        for alike in kin:
            others = {it: self._case(it, suspects, remainders, doubted) for it in alike.others}
            stand = all(self._stands(cases[it]) for it in alike.asked)
            cases |= self._together(alike, others, remainders) if stand else others
        self._decide([cases[it] for it in suspects if it in later])

        standing: list[Suspect] = []
        narrowed: list[Suspect] = []
        cleared: list[Suspect] = []
        unanswered = 0
        for case in (cases[suspect] for suspect in suspects):
            suspect = case.suspect
            failing = tuple(
                occurrence
                for occurrence in suspect.occurrences
                if self._may_fail(suspect, occurrence, case.others.get(occurrence))
            )
            for probe in case.others.values():
                answer = self._oracle.look(self._oracle.probe(probe))
                if answer is None or not (answer.failed or answer.passed):
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

    def _decide(self, cases: Sequence[_Case]) -> None:
        self._oracle.ask_all(self._questions(cases), sure=True, firm=True)
        for case in cases:
            self._seek_counter_evidence(case)

    def _stands(self, case: _Case) -> bool:
        """Whether the suspect failed in its context, and passed in none."""
        blamed = case.suspect.blame is not None or (case.blame is not None and self._failed(case.blame))
        return blamed and not self._is_cleared(case)

    def _together(self, kin: Kin, cases: dict[Suspect, _Case], remainders: Sequence[UnitSet]) -> dict[Suspect, _Case]:
        """The cases of `kin.others`: where one is open, all of them are put back in one probe instead."""
        universe, look = self._universe, self._oracle.look
        is_open = {
            it
            for it, case in cases.items()
            if case.neighbourhood or (case.blame is not None and look(case.blame) is None)
        }
        if not is_open:
            return cases
        everyone, remainder = self._place(kin.together, remainders, 0)
        places = {it: place_with_most_neighbours(universe, it, remainder, NEAR) for it in kin.others}
        everyone = replace(everyone, units=of(places.values()))
        blame = self._context(everyone, remainder) | everyone.units
        why = english(
            "{count} of {op} with other constants, in their context",
            count=len(places),
            op=universe.op[lowest(everyone.units)],
        )
        answer = self._oracle.ask(blame, why, sure=True)
        if not (answer.failed or answer.passed):
            return cases
        for it in is_open:
            suspect = replace(it, units=1 << places[it], like=kin.examples)
            cases[it] = replace(cases[it], suspect=suspect, remainder=remainder, blame=blame, neighbourhood=())
        return cases

    def _case(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainders: Sequence[UnitSet], doubted: set[int]
    ) -> _Case:
        if suspect.contested:
            return _Case(suspect, remainders[0], None, (), {})
        if suspect.capacity or suspect.pool:
            return _Case(replace(suspect, context=remainders[0], blame=suspect.fails), remainders[0], None, (), {})
        is_open = suspect.single and not suspect.verified
        if is_open and (case := self._named_case(suspect, suspects, remainders, doubted)):
            return replace(case, neighbourhood=self._named.of_op(case.suspect, suspects, remainders))
        suspect, remainder = self._place(suspect, remainders, NEAR if is_open else 0)
        questions: list[Question] = []
        say = suspect.say(self._universe)
        elsewhere: list[UnitSet] = []
        names = () if self._oracle.names_mislead else map(self._oracle.named_in, self._oracle.failing)
        if is_open and not any(is_subset(suspect.everywhere, named) for named in names):
            elsewhere = other_contexts(self._universe, suspect, remainder, all_of_them=bool(doubted))
        questions += [(probe, english("{say} in other contexts", say=say)) for probe in elsewhere]
        if is_open:
            beside = clusters(self._universe, suspect, suspects, remainder)
            questions += [(probe, english("{say} with other suspects beside it", say=say)) for probe in beside]
        if suspect.interaction and any(self._universe.variant[unit] in doubted for unit in members(suspect.units)):
            completed = [it | suspect.units for it in remainders if size(suspect.units & ~it) == 1]
            questions += [(probe, english("{say} in another remainder", say=say)) for probe in completed]
            if not rests_on_a_part(self._universe, self._oracle, suspect):
                questions += self._named.of_op(suspect, suspects, remainders)
        excused = with_what_excuses_a_part(self._universe, self._oracle, suspect)
        questions += [(probe, english("{say} with nodes that make a part of it pass", say=say)) for probe in excused]
        blame = None
        if suspect.blame is None and not self._is_known_in_place(suspect):
            near = remainder if doubted else self._context(suspect, remainder)
            blame = blamed_on_record(self._oracle, suspect, suspects, remainder, near, by_words=not elsewhere)
            if blame is None:
                blame = without_others(near | suspect.units, suspect, suspects)
        if self._small and not suspect.verified and not is_named_for_itself(self._universe, self._oracle, suspect):
            ways = self._ways(suspect, suspects, remainder)
            questions += [(probe, english("{say} in another context", say=say)) for probe in ways]
        elif is_open:
            questions += self._named.of_op(suspect, suspects, remainders)
        elif self._small and suspect.interaction and not (suspect.verified or doubted):
            questions += self._named.of_interaction(suspect, suspects)
        asked = tuple((probe, why) for probe, why in dict.fromkeys(questions) if probe != self._universe.everything)
        return _Case(suspect, remainder, blame, asked, self._occurrences_to_ask(suspect))

    def _ways(self, suspect: Suspect, suspects: Sequence[Suspect], remainder: UnitSet) -> Iterator[UnitSet]:
        """Contexts at each kind of place for a suspect of a small model that no log names, until it passes at one."""
        places = kinds_of_places(self._universe, (tuple(members(suspect.units)), *suspect.occurrences))
        yield from (remainder | place for place in places)
        if suspect.single:
            yield from (computed_from(self._universe, place) for place in places)
        for place in places:
            if any(map(self._oracle.passes_within, places)):
                return
            if context := open_context(self._universe, self._oracle, place, suspects, named=False):
                yield context

    def _named_case(
        self, suspect: Suspect, suspects: Sequence[Suspect], remainders: Sequence[UnitSet], doubted: set[int]
    ) -> _Case | None:
        """The suspect with all units near it, if the compiler names the op it refuses; otherwise None.

        Other nodes that the log names there are left out: they belong to no pattern that could clear the suspect.
        """
        universe, oracle = self._universe, self._oracle
        if not is_named(universe, oracle, suspect):
            return None
        suspect, remainder = self._place(suspect, remainders, PATTERN)
        others = self._occurrences_to_ask(suspect)
        if self._small and not commonest_of_lists(universe, oracle):
            beside = oracle.without_named(universe.everything, suspect.everywhere)
            named = oracle.refused_by_log(beside) & suspect.everywhere
            places = named or suspect.units & beside or suspect.everywhere & beside
            return _Case(replace(suspect, units=1 << lowest(places)), remainder, beside, (), others)
        singles = union(other.everywhere for other in suspects if other.single)
        names = refused_by_name(universe, oracle, universe.everything & ~(remainder | singles))
        names = {unit: probe for unit, probe in names.items() if suspect.everywhere >> unit & 1}
        near = remainder if doubted else self._context(suspect, remainder)
        blame = blamed_on_record(self._oracle, suspect, suspects, remainder, near, by_words=True)
        if names:
            unit, blame = next(iter(names.items()))
            return _Case(replace(suspect, units=1 << unit), remainder, blame, (), others)
        if blame is None:
            beside = suspect.units | universe.ball(suspect.units, PATTERN) & singles
            blame = near | universe.ball(beside, PATTERN) & (remainder | singles)
            blame &= ~listed_beside(universe, oracle, suspect)
            while (verdict := oracle.look(blame)) and verdict.failed:
                besides = oracle.refused_by_log(blame)
                if not besides or besides & suspect.units:
                    return None
                # others like it would be named one after the other
                blame &= ~(besides | differing_in_constants(universe, besides) & ~suspect.everywhere)
        return _Case(suspect, remainder, blame, (), others)

    def _place(self, suspect: Suspect, remainders: Sequence[UnitSet], steps: int) -> tuple[Suspect, UnitSet]:
        """The occurrence that is asked, and the remainder that it is put back into.

        A single suspect is moved to the place that keeps most units within so many steps, unless `steps` is 0.
        """
        universe = self._universe
        if suspect.blame is not None and suspect.context is not None:
            return suspect, suspect.context
        if steps:
            placed = [(place_with_most_neighbours(universe, suspect, it, steps), it) for it in remainders]
            unit, remainder = max(placed, key=lambda it: neighbours_kept(universe, it[0], it[1], steps))
            return replace(suspect, units=1 << unit), remainder
        around = universe.ball(suspect.units, 1)
        return suspect, max(remainders, key=lambda remainder: size(around & remainder))

    def _questions(self, cases: Sequence[_Case]) -> list[Question]:
        questions: list[Question] = []
        for case in cases:
            if case.blame is not None:
                say = case.suspect.say(self._universe)
                questions += [
                    (case.blame, english("{say} back in its context", say=say)),
                    (case.suspect.fails, english("{say} alone", say=say)),
                ]
        for case in cases:
            questions += self._named.parts_alone(case.suspect)
        for case in cases:
            questions += [
                (probe, english("another place of {say}", say=case.suspect.say(self._universe)))
                for probe in case.others.values()
            ]
        return list(dict.fromkeys(questions))

    def _seek_counter_evidence(self, case: _Case) -> None:
        """Ask contexts one after the other until the suspect passes in one or has failed in all."""
        if not self._is_cleared(case):
            for probe, why in case.neighbourhood:
                if self._oracle.ask(probe, why, sure=True).passed:
                    # Clearing the suspect rests on this one answer.
                    self._oracle.ask(probe, english("a contradiction"), again=True)
                    return

    def _is_cleared(self, case: _Case) -> bool:
        """Whether a probe that contains the suspect passes."""
        suspect = case.suspect
        if suspect.capacity or suspect.pool or suspect.contested:
            return False
        return self._oracle.passes_within(case.suspect.units)

    def _may_fail(self, suspect: Suspect, occurrence: Occurrence, probe: UnitSet | None) -> bool:
        """Whether the probe of an occurrence failed; without one, whether none that holds it passed."""
        if probe is not None:
            return self._failed(probe)
        units = of(occurrence)
        return not suspect.interaction or self._failed(units) or not self._oracle.passes_within(units)

    def _is_known_in_place(self, suspect: Suspect) -> bool:
        """Whether a repair need not put back an interaction that fails by itself: it is in a small piece, or the log of
        the whole model names it.
        """
        if not self._brief or not suspect.interaction or not self._failed(suspect.units):
            return False
        everything = self._universe.everything
        return self._universe.is_small or bool(suspect.units & self._oracle.named_in(everything))

    def _failed(self, probe: UnitSet) -> bool:
        verdict = self._oracle.look(self._oracle.probe(probe))
        return verdict is not None and verdict.failed

    def _occurrences_to_ask(self, suspect: Suspect) -> dict[Occurrence, UnitSet]:
        """The probe for each occurrence except the one already asked; identical occurrences share a probe."""
        if suspect.verified or self._brief:
            return {}
        probes: dict[Occurrence, UnitSet] = {}
        for occurrence in enough_to_show(self._universe, suspect.occurrences, lambda place: self._failed(of(place))):
            units = of(occurrence)
            probe = alone_probe(self._universe, occurrence[0]) if len(occurrence) == 1 else units
            if probe != suspect.fails and units != suspect.units:
                probes[occurrence] = probe
        if not suspect.single or not self._universe.weightless:
            return probes
        # Of places that differ in weights only, the first and the last: a refused op is mostly refused whatever its
        # weights are, and then the other places are inferred. If one of these passes, places with other weights are no
        # longer taken for the same culprit (`Locator._single`).
        alike: dict[int, list[Occurrence]] = {}
        for occurrence in probes:
            alike.setdefault(self._universe.weightless[occurrence[0]], []).append(occurrence)
        return {occurrence: probes[occurrence] for places in alike.values() for occurrence in (places[0], places[-1])}

    def _context(self, suspect: Suspect, remainder: UnitSet) -> UnitSet:
        """The part of the remainder around a suspect that is compiled with it; all of a small model's.

        There what the compiler takes together need not be connected, and the whole costs no more than its part. All of
        it as well where a part that was asked is refused for something else, which compiles where nothing is cut.
        """
        units, most = suspect.units, remainder | suspect.everywhere
        around = self._universe.ball(units, REACH, remainder | units) & remainder
        if self._small or size(around) * 2 > size(remainder):
            return remainder
        parts = (it for it in self._oracle.failing if is_subset(units, it) and is_subset(it, most))
        return remainder if any(is_about_others(self._oracle, part, suspect) for part in parts) else around
