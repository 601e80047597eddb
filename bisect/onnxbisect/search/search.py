"""The whole search, replayed from the start each time: find, confirm, prove."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from operator import and_

from onnxbisect.diagnosis import ContextUnits
from onnxbisect.language import english
from onnxbisect.search.confirm import Confirmer
from onnxbisect.search.limits import AnswerLimitError, covering, is_covered, pieces
from onnxbisect.search.locate import Locator
from onnxbisect.search.minimise import CapacityError
from onnxbisect.search.oracle import BlockedError, Oracle
from onnxbisect.search.pattern import identical, ways_to_break
from onnxbisect.search.places import asked_alone, failing_only_alone, seen_to_fail, unseen_in_place
from onnxbisect.search.state import SearchState, Suspect
from onnxbisect.search.within_limit import WithinLimit
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind

#: Probes without an answer, or ops that fail alone in the same words, after which the search gives up.
MOST_IN_VAIN = 8
#: Fewest ops of a model that are enough if all of them fail so.
_FEWEST_OPS = 4
#: A passing probe up to this size shows well enough which neighbours a unit needs.
_SMALL = 8
#: A piece without an answer of so many units is taken apart unit by unit.
_FEW_UNANSWERED = 3
#: Failing probes that are part of a passing one, after which the search gives up.
_MOST_CONTRADICTED = 150
#: Probes that passed and failed, after which the search gives up: of an op that is to blame, few contexts stay sure.
_MOST_FLAKY = 40


class SearchReplay:
    """One replay. After `run`, `state` holds what follows from the verdicts on record."""

    def __init__(
        self, universe: Universe, oracle: Oracle, state: SearchState, *, brief: bool = False, as_is: bool = False
    ) -> None:
        self._universe = universe
        self._oracle = oracle
        self._brief = brief
        self._as_is = as_is
        self._confirmer = Confirmer(universe, oracle, brief=brief)
        self._within_limit = WithinLimit(universe, oracle, state, brief=brief)
        self.locator = Locator(universe, oracle, state, brief=brief)
        self.state = state

    def run(self) -> None:
        """Replay as far as the verdicts on record allow; the missing probes are in `Oracle.wanted`."""
        try:
            whole = self._universe.everything
            self._oracle.settle_crashes()
            ask = partial(self._oracle.ask, whole, english("the whole model"))
            # only a pass ends the search here, so only a pass is rechecked
            if not whole or (ask().passed and ask(sure=True).passed):
                self.state.proof = (whole,)
            elif sentence := self._hopeless() or self._invalid():
                self.state.hopeless = sentence
            else:
                self._search()
            self.state.finished = True
        except BlockedError:
            return

    def _hopeless(self) -> str:
        """Why further probes are useless, as a sentence; else empty. The compiler never answers or always refuses."""
        if self._oracle.passing:
            return ""
        if not self._oracle.failing and (said := self._said_of_every_probe()):
            return english("The compiler gives every probe the same error: {said}", said=said)
        if not self._oracle.failing and len(self._oracle.unanswered) >= MOST_IN_VAIN:
            return english(
                "None of {count} probes got an answer: check that the compiler itself works.",
                count=len(self._oracle.unanswered),
            )
        if self._brief:  # a piece of a model may have nothing but ops that are refused
            return ""
        refused = [probe for probe in self._oracle.failing if size(probe) == 1]
        answers = [answer for probe in refused if (answer := self._oracle.look(probe)) is not None]
        ops = {self._universe.op[lowest(probe)] for probe in refused}
        together = any(size(probe) > 1 and probe != self._universe.everything for probe in self._oracle.failing)
        alike = len({answer.fingerprint for answer in answers}) == 1 and not any(answer.hints for answer in answers)
        enough = min(MOST_IN_VAIN, max(_FEWEST_OPS, len(self._universe.units_by_op)))
        if alike and together and len(ops) >= enough:
            return english(
                "Nothing passed, and {count} different ops fail alone in the same words: check that the "
                "compiler itself works.",
                count=len(ops),
            )
        return ""

    def _invalid(self) -> str:
        """Why the model is to be mended first, as a sentence: all that the compiler names of it is invalid; else empty.

        Behind such a node no tensor has a type, so few cuts there would get an answer.
        """
        named = self._oracle.refused_by_log(self._universe.everything)
        if self._as_is or not named or named & ~self._universe.invalid:
            return ""
        return english(
            "The compiler names {node}, an invalid node: mend the export. `--as-is` searches the rest all the same.",
            node=f"'{self._universe.names[lowest(named)][0]}'",
        )

    def _said_of_every_probe(self) -> str:
        """The error that disjoint probes got before any other answer, so it is not about the model; else empty."""
        probes = self._oracle.unanswered
        verdicts = [verdict for probe in probes if (verdict := self._oracle.look(probe)) is not None]
        if len({(verdict.kind, verdict.message) for verdict in verdicts}) != 1 or verdicts[0].kind is not Kind.ERROR:
            return ""
        apart = any(not one & other for index, one in enumerate(probes) for other in probes[:index])
        return verdicts[0].message if apart else ""

    def _search(self) -> None:
        whole = self._universe.everything
        self._oracle.settle_contradictions()
        listed = self._oracle.named_in(whole)
        if listed != whole and self._may_be_all(listed):
            self._oracle.ask(whole & ~listed, english("all but the nodes that the log lists"))
        elif self._universe.doubted and self._universe.doubted != whole:
            self._oracle.ask(whole & ~self._universe.doubted, english("all but what failed before it was repaired"))
        # Every iteration settles a suspect or a cut-induced failure; otherwise verdicts contradict each other.
        for _ in range(4 * len(self._universe) + 16):
            self._find_all()
            if self.state.limits:
                return
            if self._contradicts_itself():
                break
            if self._settle():
                return
        self.state.stuck = True

    def _contradicts_itself(self) -> bool:
        """Whether so many probes passed and failed, or so many parts of what passes failed, that more probes would not
        settle what is to blame.
        """
        if len(self._oracle.flaky) > _MOST_FLAKY:
            return True
        failing = self._oracle.failing
        if len(failing) <= _MOST_CONTRADICTED:
            return False
        return sum(map(self._oracle.passes_within, failing)) > _MOST_CONTRADICTED

    def _may_be_all(self, listed: UnitSet) -> bool:
        """Whether the nodes listed for the whole model may be every refused one.

        A compiler often lists all of them: then the model without them passes. Two adjacent nodes are no list but one
        refused pair. A single name is often only the first one, and is worth a probe where it leaves out nodes of its
        variant with another neighbourhood, which may be fused there. The first of several wrong numbers is no list.
        """
        if size(listed) != 1 or self._oracle.has_wrong_numbers(self._universe.everything):
            return size(listed) > 2 or len(self._universe.components(listed)) > 1
        alike = self._universe.variant_members[self._universe.variant[lowest(listed)]]
        return len({self._universe.neighbourhoods[unit] for unit in members(alike)}) > 1

    def _find_all(self) -> None:
        """Add suspects until every remainder passes and every failing probe on record contains a suspect."""
        for _ in range(len(self._universe) + 16):
            found = self._find_in_remainders() or self._find_in_unexplained()
            if found is None or self._within_limit.explains(found):
                return
            if any(found.units == of(places) for suspect in self.state.suspects for places in suspect.occurrences):
                break  # a culprit that is found again was not broken
            self._add(found)
        self.state.stuck = True

    def _add(self, found: Suspect) -> None:
        """Add a suspect. Contested units of one variant are found one by one and merged into one suspect."""
        variant = self._universe.variant
        for index, other in enumerate(self.state.suspects):
            if found.contested and other.contested and variant[lowest(found.units)] == variant[lowest(other.units)]:
                merged = replace(other, occurrences=(*other.occurrences, *found.occurrences))
                self.state.suspects = (*self.state.suspects[:index], merged, *self.state.suspects[index + 1 :])
                return
        self.state.suspects = (*self.state.suspects, found)

    def _find_in_remainders(self) -> Suspect | None:
        ways, self.state.exhaustive, self.state.cut_short = ways_to_break(self._universe, self.state.suspects)
        if self._brief and len(ways) > 1:
            ways, self.state.exhaustive, self.state.cut_short = ways[:1], False, True
        proof: list[UnitSet] = []
        impossible = [self._universe.impossible_without(broken) for broken in ways]
        self.state.impossible = reduce(and_, impossible, self._universe.everything)
        for broken, beyond in zip(ways, impossible, strict=True):
            region = self._universe.everything & ~broken & ~self.state.unresolved & ~beyond
            self.state.masked = broken
            if (smaller := self._smaller(region)) is not None:
                return smaller
            found = self._find_in_pieces(region) if self.state.answerable else self._find(region)
            if found is None and self.state.answerable and not proof:
                found = self._find_in_pieces(region)
            if found is not None:
                return found
            region &= ~self.state.unresolved
            most = self.state.answerable
            proof += covering(self._universe, self._oracle, region, most) if most else [region]
        self.state.proof = tuple(proof)
        return None

    def _find_in_pieces(self, region: UnitSet) -> Suspect | None:
        """A suspect in a region that is too large for an answer, found in pieces of it that get one."""
        most = self.state.answerable - 1  # with a suspect put back, it still gets an answer
        for piece in pieces(self._universe, region, most):
            found = self._find_in_piece(piece, most)
            if found is not None:
                return found
        return None

    def _find_in_piece(self, piece: UnitSet, most: int) -> Suspect | None:
        piece &= ~self.state.unresolved
        if not piece or is_covered(self._universe, self._oracle, piece, most):
            return None
        answer = self._oracle.ask(piece, english("a piece small enough for an answer"))
        if answer.final or size(piece) <= _FEW_UNANSWERED:
            return self._find(piece)
        for part in pieces(self._universe, piece, -(-size(piece) // 2)):
            found = self._find_in_piece(part, -(-size(piece) // 2)) if part != piece else self._find(piece)
            if found is not None:
                return found
        return None

    def _smaller(self, region: UnitSet) -> Suspect | None:
        """A suspect that replaces an interaction of which a part fails, asked if a remainder with that part fails."""
        verdict = self._oracle.look(region)
        if verdict is None or not verdict.failed:
            return None
        for suspect in self.state.suspects:
            if not suspect.interaction or not suspect.units & region:
                continue
            part = suspect.units & region
            if size(suspect.units & ~region) != 1 or self._oracle.passes_within(part):
                continue
            if self.locator.minimiser.fails(part, english("a part of an interaction")):
                self.state.suspects = tuple(other for other in self.state.suspects if other is not suspect)
                return self._find(region, part)
        return None

    def _find_in_unexplained(self) -> Suspect | None:
        """A suspect in a failing probe that contains none yet; remainders can miss it."""
        for failing in self._oracle.failing:
            unit = asked_alone(self._oracle, failing)
            if (
                (unit and self._universe.variant[lowest(unit)] in self.state.only_alone)
                or failing & self.state.unresolved
                or self._oracle.passes_within(failing)
                or 0 < self.state.answerable < size(failing)
                or any(suspect.capacity or suspect.held_by(failing) for suspect in self.state.suspects)
            ):
                continue
            found = self._find(failing)
            if found is not None:
                return found
        return None

    def _find(self, region: UnitSet, part: UnitSet = 0) -> Suspect | None:
        """A suspect in the region, or in a part of it that fails."""
        try:
            return self.locator.narrowed(part, region) if part else self.locator.find(region)
        except AnswerLimitError as error:
            self.state.answerable = error.units
            return None
        except CapacityError as error:
            largest = self._oracle.best_passing(region)
            if self.state.capacity or not largest:
                self.state.unresolved |= error.units & ~largest
                return None
            self.state.capacity = largest
            # of sets that are larger than what passes, nothing tells whether their ops matter
            self.state.suspects = tuple(
                it for it in self.state.suspects if it.single or size(it.units) <= size(largest)
            )
            return Suspect(
                units=error.units,
                fails=error.units,
                occurrences=(tuple(members(error.units)),),
                capacity=True,
                verified=True,
            )

    def _settle(self) -> bool:
        """Confirm the suspects; True if all of them stand unchanged."""
        minimal = self._minimal()
        if minimal != self.state.suspects:
            self.state.suspects = minimal
            return False
        outcome = self._confirmer.confirm(
            self.state.suspects,
            self.state.proof if self.state.proof and not self.state.capacity else (self.remainder,),
            self.state.only_alone,
        )
        self.state.suspects = (*outcome.suspects, *outcome.narrowed)
        self.state.unresolved |= outcome.unanswered
        for suspect in outcome.narrowed:
            self.state.split.setdefault(self._universe.variant[lowest(suspect.units)], 1)
        for suspect in outcome.cleared:
            if size(suspect.units) == 1:
                self.state.only_alone.add(self._universe.variant[lowest(suspect.units)])
        if outcome.cleared:
            # Blame found in a remainder without the cleared suspects must be confirmed with them.
            self.state.suspects = tuple(
                suspect if suspect.capacity or suspect.contested else replace(suspect, context=None, blame=None, like=0)
                for suspect in self.state.suspects
            )
        if outcome.cleared or outcome.narrowed:
            return False
        # Ask about suspects that nothing blames in their place; True if one of them passes there.
        seen = seen_to_fail(self._universe, self._oracle, self.state)
        missing = unseen_in_place(self._universe, self._oracle, self.state, seen, self.remainder)
        answers = self._oracle.ask_all([(probe, english("a suspect in its place")) for probe in missing], sure=True)
        if any(answer.passed for answer in answers):
            return False
        if not self._brief:
            self._ask_again_what_failed_for_a_while()
        self.state.needs_context = tuple(self._needing_context())
        return True

    def _needing_context(self) -> Iterator[ContextUnits]:
        """Units that fail alone and passed among others, with the smallest group in which they did.

        Asks one small group, and the unit alone again. Not units of suspects: the same op may be to blame in another
        place.
        """
        blamed = union(suspect.everywhere for suspect in self.state.suspects)
        for failing in failing_only_alone(self._universe, self._oracle).values():
            alike = identical(self._universe, failing) & ~blamed
            op = self._universe.op[lowest(failing)]
            if not alike or not self._oracle.ask(failing, english("{op} alone", op=op), again=True).failed:
                continue
            smallest = min((passing for passing in self._oracle.passing if passing & alike), key=size, default=0)
            if size(smallest) > _SMALL:
                around = (self._universe.ball(1 << lowest(smallest & alike), steps) for steps in (1, 2))
                why = english("{op} with its neighbours", op=op)
                smallest = next((it for it in around if self._oracle.ask(it, why).passed), smallest)
            if smallest:
                unit, places = lowest(smallest & alike), tuple(1 << unit for unit in members(alike))
                yield ContextUnits(units=1 << unit, occurrences=places, passes_with=smallest)

    def _ask_again_what_failed_for_a_while(self) -> None:
        """Ask a suspect again all of whose failures came in one run, without a pass between them.

        A compiler that is down, such as without its licence, refuses whatever it is asked, and names no op. It was not
        down in a run in which a suspect failed that also failed in another one.
        """
        suspects = [suspect for suspect in self.state.suspects if not suspect.capacity]
        runs = {}
        for suspect in suspects:
            others = [other for other in suspects if other is not suspect]
            failing = (probe for probe in self._oracle.failing if suspect.held_by(probe))
            blaming = [probe for probe in failing if not any(other.held_by(probe) for other in others)]
            runs[suspect.fails] = self._oracle.runs([self._oracle.probe(suspect.fails), *blaming])
        sure = union(run for run in runs.values() if size(run) > 1)
        for probe, run in runs.items():
            answer = self._oracle.look(probe)
            if size(run) == 1 and not run & (sure | self._oracle.run) and answer is not None and not answer.hints:
                self._oracle.want(probe, english("a suspect that failed for a while"))
                raise BlockedError

    def _minimal(self) -> tuple[Suspect, ...]:
        """The suspects without occurrences that contain an occurrence of another suspect; those are not minimal."""
        kept = []
        for suspect in self.state.suspects:
            if not suspect.interaction:
                kept.append(suspect)
                continue
            others = [
                other for other in self.state.suspects if other is not suspect and not other.capacity and not other.pool
            ]
            singles = union(other.everywhere for other in others if other.single)
            smaller = [
                of(places)
                for other in others
                if 1 < size(other.units) < size(suspect.units)
                for places in other.occurrences
            ]
            occurrences = tuple(
                occurrence
                for occurrence in suspect.occurrences
                if not (units := of(occurrence)) & singles and not any(is_subset(part, units) for part in smaller)
            )
            if len(occurrences) == len(suspect.occurrences):
                kept.append(suspect)
            elif occurrences and suspect.units not in {of(occurrence) for occurrence in occurrences}:
                first = of(occurrences[0])
                kept.append(Suspect(units=first, fails=self._oracle.probe(first), occurrences=occurrences))
            elif occurrences:
                kept.append(replace(suspect, occurrences=occurrences))
        return tuple(kept)

    @property
    def remainder(self) -> UnitSet:
        """The model without its culprits; beyond capacity, the largest piece that passed."""
        if self.state.capacity:
            return self.state.capacity
        if self.state.proof:
            return self.state.proof[0]
        blamed = union(suspect.everywhere for suspect in self.state.suspects)
        return self._oracle.best_passing(self._universe.everything & ~blamed)
