"""Looks up verdicts, settles disagreeing answers to one probe, and collects the probes without an answer."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from onnxbisect.answer import Ask, Verdicts
from onnxbisect.language import english
from onnxbisect.search.state import SearchState, Suspect
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, sort_key, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind, Status, Verdict

#: A question whose answers disagree is asked until one side leads by this many …
LEAD = 3
#: … or this many answers are in; then the question has no answer.
MOST_ANSWERS = 9

#: Probes in which a crash came again, after which its words are believed.
_CRASHES_BELIEVED = 2
#: How often a probe has to crash by a signal that another probe got once, and passed then.
_CRASHES_SURE = 5

Question = tuple[UnitSet, str]
#: Asks whether a set fails, with the phrase that says why (`Minimiser.fails`).
Fails = Callable[[UnitSet, str], bool]


def _signal(crash: Verdict) -> str:
    return crash.fingerprint.partition(":")[0]


def telling(answers: Sequence[Verdict]) -> Sequence[Verdict]:
    """The answers without crashes that came by chance: those of a probe that also passed."""
    if not any(answer.passed for answer in answers):
        return answers
    return [answer for answer in answers if not answer.by_chance]


def first_wrong(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The wrong units of a probe that no other wrong unit feeds, directly or through units the log does not list.

    A log that compares tensors with their reference values names one culprit and perhaps a hundred innocent ops: what
    computes wrong values makes nearly everything behind it wrong. Only the first wrong ones are suspects.

    An unlisted unit counts as wrong if something wrong feeds it, and as right otherwise: it propagates wrong numbers
    and never starts them. Units listed as right, and the inputs of the probe, propagate nothing.
    """
    unknown = probe & ~wrong & ~right
    fed = 0
    layer = seen = wrong
    while layer:
        after = union(universe.successors[unit] for unit in members(layer))
        fed |= after
        layer = after & unknown & ~seen
        seen |= layer
    return wrong & ~fed


def unlisted_before(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The unlisted units upstream of where wrong numbers begin; one of them may have started them."""
    unknown = probe & ~wrong & ~right
    found = 0
    layer = first_wrong(universe, probe, wrong, right)
    while layer:
        layer = union(universe.predecessors[unit] for unit in members(layer)) & unknown & ~found
        found |= layer
    return found


class BlockedError(Exception):
    """The search cannot continue before the probes in `Oracle.wanted` are answered."""


class Oracle:
    """Answers from the verdicts on record, and collects the probes that have none yet.

    A probe is settled once its answers agree, or one side leads by `LEAD`. Probes that decide something (`sure=True`)
    are compiled `LEAD` times if the user asked for rechecks or the compiler has contradicted itself in this job.
    """

    def __init__(
        self,
        universe: Universe,
        verdicts: Verdicts,
        recheck: bool = False,
        state: SearchState | None = None,
        order: Sequence[UnitSet] = (),
    ) -> None:
        """`state` is that of the replay that asks; without it nothing is masked.

        `order` are its probes in the order in which it asked for them, each as often as that.
        """
        self.universe = universe
        self.wanted: dict[UnitSet, Ask] = {}
        #: Whether all of `wanted` must be answered before the search continues.
        self.wants_all = False
        self._verdicts = verdicts
        self._state = state or SearchState()
        self._order = order
        self._grown: dict[tuple[UnitSet, UnitSet], UnitSet] = {}
        self._settled: dict[UnitSet, Verdict | None] = {}
        self._named: dict[UnitSet, UnitSet] = {}
        self._unlisted: dict[UnitSet, UnitSet] = {}
        self._mislead: tuple[Sequence[Suspect], bool] | None = None
        self.flaky = tuple(
            sorted((asked for asked in verdicts if self._disagree(telling(verdicts[asked]))), key=sort_key)
        )
        self._answers_to_be_sure = LEAD if recheck or self.flaky else 1
        self.passing: list[UnitSet] = []
        self.failing: list[UnitSet] = []
        #: Probes without an answer; their cause is searched for like that of a failure.
        self.unanswered: list[UnitSet] = []
        for asked in verdicts:
            verdict = self.look(asked)
            if verdict is not None and verdict.passed:
                self.passing.append(asked)
            elif verdict is not None and verdict.failed:
                self.failing.append(asked)
            elif verdict is not None:
                self.unanswered.append(asked)
        # Sorted by content, not by arrival, so that the same verdicts give the same plan for any number of workers.
        self.passing.sort(key=lambda units: (-size(units), units))
        self.failing.sort(key=lambda units: (size(units), units))
        self.unanswered.sort(key=lambda units: (size(units), units))
        #: Units in a probe that passed; none of them is to blame alone.
        self.exonerated: UnitSet = union(self.passing)

    @property
    def due(self) -> list[Ask]:
        """The probes that a search with one worker compiles next: one, unless the search needs all of them."""
        wanted = list(self.wanted.values())
        return wanted if self.wants_all else wanted[:1]

    @property
    def rechecks(self) -> bool:
        """Whether a probe has to be compiled more than once to decide anything."""
        return self._answers_to_be_sure > 1

    @staticmethod
    def _disagree(answers: Sequence[Verdict]) -> bool:
        return len({answer.status for answer in answers if answer.status is not Status.UNRESOLVED}) > 1

    def probe(self, units: UnitSet) -> UnitSet:
        """The probe for a set: its units and their required producers (`Universe.required_producers`).

        Masked units stay out; the cut runs behind them. A set that is a probe on record is returned unchanged.
        """
        if not self.universe.required_producers or units in self._verdicts:
            return units
        asked = (units, self._state.masked)
        if asked not in self._grown:
            self._grown[asked] = self.universe.with_required_producers(units, self._state.masked)
        return self._grown[asked]

    def look(self, units: UnitSet) -> Verdict | None:
        """The settled verdict of exactly this probe; None if it is unknown or still open."""
        units = self.probe(units)
        if units not in self._settled:
            self._settled[units] = self._settle(telling(self._verdicts.get(units, ())))
        return self._settled[units]

    def _settle(self, answers: Sequence[Verdict]) -> Verdict | None:
        if not answers:
            return None
        passes = [answer for answer in answers if answer.passed]
        fails = [answer for answer in answers if answer.failed]
        if not passes or not fails:
            return (passes or fails or list(answers))[0]
        if abs(len(passes) - len(fails)) < LEAD and len(answers) < MOST_ANSWERS:
            return None
        if abs(len(passes) - len(fails)) < LEAD:
            return Verdict(
                status=Status.UNRESOLVED,
                message=english(
                    "the compiler failed this probe {count} times and passed it {count_b} times",
                    count=len(fails),
                    count_b=len(passes),
                ),
            )
        return (passes if len(passes) > len(fails) else fails)[0]

    def confidence(self, units: UnitSet) -> float:
        """Probability that the majority verdict is right, if answers are right more often than not.

        Posterior mean of the share of the majority answer under a uniform prior (rule of succession); 1.0 if no answer
        disagreed.
        """
        answers = telling(self._verdicts.get(self.probe(units), ()))
        if not self._disagree(answers):
            return 1.0
        fails = sum(answer.failed for answer in answers)
        passes = sum(answer.passed for answer in answers)
        return (max(fails, passes) + 1) / (fails + passes + 2)

    def mostly_passed(self, units: UnitSet) -> bool:
        """Whether more than half of this probe's answers are passes, even if that does not settle it."""
        answers = telling(self._verdicts.get(self.probe(units), ()))
        return sum(answer.passed for answer in answers) > sum(answer.failed for answer in answers)

    def answers(self, units: UnitSet) -> int:
        """How often this probe was compiled."""
        return len(self._verdicts.get(self.probe(units), ()))

    def want(self, units: UnitSet, why: str) -> None:
        """Note a probe, which is compiled once the search cannot continue without it."""
        units = self.probe(units)
        if units not in self.wanted:
            self.wanted[units] = Ask(units=units, attempt=self.answers(units), why=why)

    def ask(self, units: UnitSet, why: str, *, sure: bool = False, again: bool = False) -> Verdict:
        """The verdict of this probe; raises BlockedError if it must be compiled first.

        `sure`: it decides a culprit or the certificate. `again`: another verdict contradicts it, so it is compiled
        twice in any case.
        """
        verdict = self.look(units)
        wanted_answers = max(2 if again else 1, self._answers_to_be_sure if sure else 1)
        if verdict is None or self.answers(units) < wanted_answers:
            self.want(units, why if not self.answers(units) else english("{why}, again", why=why))
            raise BlockedError
        return verdict

    def ask_all(self, questions: Iterable[Question], *, sure: bool = False, firm: bool = False) -> list[Verdict]:
        """The verdicts of probes that do not depend on each other, compiled together.

        `firm`: no answer makes another probe superfluous, so the search waits for all of them.
        """
        answers: list[Verdict] = []
        blocked = False
        for units, why in questions:
            try:
                answers.append(self.ask(units, why, sure=sure))
            except BlockedError:
                blocked = True
        if blocked:
            self.wants_all = firm
            raise BlockedError
        return answers

    def settle_crashes(self) -> None:
        """Ask again what crashed, and may not do so again (`Verdict.by_chance`).

        Words that stayed in two probes are believed. Of a signal that went away once, or came with other words, each
        crash has to come five times.
        """
        crashes = {probe: answers for probe in self.failing if (answers := self._verdicts[probe])[0].by_chance}
        stayed = Counter(answers[0].fingerprint for answers in crashes.values() if len(answers) > 1)
        passed = (answer for probe in self.passing for answer in self._verdicts[probe])
        random = {_signal(answer) for answer in passed if answer.by_chance}
        random |= {_signal(it[0]) for it in crashes.values() if len({answer.fingerprint for answer in it}) > 1}
        for probe, answers in crashes.items():
            enough = 2 if stayed[answers[0].fingerprint] < _CRASHES_BELIEVED else 1
            if len(answers) < (_CRASHES_SURE if _signal(answers[0]) in random else enough):
                self.want(probe, english("a crash that may not come again"))
                raise BlockedError

    def runs(self, probes: Iterable[UnitSet]) -> UnitSet:
        """After how many passes these probes failed, as a set; `run` is that of what is asked now."""
        return union(self._runs.get(probe, 0) for probe in probes)

    @property
    def run(self) -> UnitSet:
        return self._runs[0]

    @cached_property
    def _runs(self) -> dict[UnitSet, UnitSet]:
        """`runs` of each probe; that of the empty one is now."""
        runs: dict[UnitSet, UnitSet] = {}
        attempts: Counter[UnitSet] = Counter()
        now = 1
        for probe in self._order:
            answer = self._verdicts[probe][attempts[probe]]
            attempts[probe] += 1
            if answer.passed:
                now <<= 1
            elif answer.failed:
                runs[probe] = runs.get(probe, 0) | now
        runs[0] = now
        return runs

    def settle_contradictions(self) -> None:
        """If one answer decides nothing: recheck all probes that failed inside a probe that passed."""
        if not self.rechecks:
            return
        for passing in self.passing:
            inside = [failing for failing in self.failing if is_subset(failing, passing)]
            if inside:
                self.ask_all(((probe, english("a contradiction")) for probe in (passing, *inside)), sure=True)

    def named_in(self, failing: UnitSet) -> UnitSet:
        """The units of a failing probe whose nodes or tensors its log names; for wrong numbers, where they begin."""
        verdict = self.look(failing)
        if verdict is None:
            return 0
        if failing not in self._named:
            named = self._units((*verdict.hints.nodes, *verdict.hints.tensors)) & failing
            if verdict.kind is Kind.NUMERIC:
                named = first_wrong(self.universe, failing, named, self._units(verdict.hints.right))
            self._named[failing] = named
        return self._named[failing]

    def of_named_ops(self, failing: UnitSet) -> UnitSet:
        """The units of a failing probe of whose ops its log names one, with the domain or without."""
        verdict = self.look(failing)
        ops = () if verdict is None else verdict.hints.ops
        return union(self.universe.units_by_op.get(op, 0) for op in ops) & failing

    def refused_by_log(self, failing: UnitSet) -> UnitSet:
        """The units that the log says are refused: nodes that it names, or the one unit of the one op that it names.

        A list of ops is no evidence, and a table of tensors does not name refused ops.
        """
        verdict = self.look(failing)
        named = self.named_in(failing)
        if verdict is None or len(verdict.hints.ops) != 1 or self.has_wrong_numbers(failing):
            return named
        units = self.of_named_ops(failing)
        return named | (units if size(units) == 1 else 0)

    def without_named(self, probe: UnitSet, places: UnitSet) -> UnitSet:
        """The probe without what its log names, and so on, until a log names one of these places, or nothing.

        The units of one op may be refused in one place and compile in another, so this holds more than what is left
        without the ops that are named.
        """
        while (verdict := self.look(probe)) and verdict.failed:
            named = self.refused_by_log(probe)
            if not named or named & places:
                break
            probe &= ~named
        return probe

    @property
    def names_mislead(self) -> bool:
        """Whether some log names a unit that passed in another probe, and is in no interaction that the probe holds.

        A compiler that lists what it was compiling, or names a neighbour, does so. From then on its names still steer
        the search, but nothing that it names counts as refused there.
        """
        suspects = self._state.suspects
        if self._mislead is None or self._mislead[0] is not suspects:
            together = [of(it) for suspect in suspects if suspect.interaction for it in suspect.occurrences]
            mislead = any(
                named & ~union(it for it in together if is_subset(it, failing)) for failing, named in self._misnamed
            )
            self._mislead = suspects, mislead
        return self._mislead[1]

    @cached_property
    def _misnamed(self) -> list[tuple[UnitSet, UnitSet]]:
        """Failing probes, and those units that their logs name and that passed elsewhere."""
        named = ((failing, self.refused_by_log(failing) & self.exonerated) for failing in self.failing)
        return [(failing, units) for failing, units in named if units]

    def has_wrong_numbers(self, probe: UnitSet) -> bool:
        """Whether the probe compiles and computes wrong numbers."""
        verdict = self.look(probe)
        return verdict is not None and verdict.kind is Kind.NUMERIC

    def unlisted_in(self, failing: UnitSet) -> UnitSet:
        """The units of a probe with wrong numbers that may have started them and that its log does not list."""
        verdict = self.look(failing)
        if verdict is None or verdict.kind is not Kind.NUMERIC:
            return 0
        if failing not in self._unlisted:
            wrong = self._units(verdict.hints.tensors) & failing
            right = self._units(verdict.hints.right)
            self._unlisted[failing] = unlisted_before(self.universe, failing, wrong, right)
        return self._unlisted[failing]

    def _units(self, names: Iterable[str]) -> UnitSet:
        index = self.universe.unit_by_name
        return of(index[name] for name in names if name in index)

    def passes_within(self, units: UnitSet) -> bool:
        """Whether a passing probe contains these units; a monotone compiler then accepts them."""
        return any(not units & ~passing for passing in self.passing)

    def best_passing(self, within: UnitSet) -> UnitSet:
        """The largest set inside `within` that passes, according to probes that contain it."""
        best = 0
        for passing in self.passing:
            if size(passing) <= size(best):
                break
            inside = passing & within
            if size(inside) > size(best):
                best = inside
        return best

    def smallest_passing(self, units: UnitSet, within: UnitSet) -> UnitSet:
        """The smallest passing probe inside `within` that contains these units; 0 if there is none."""
        return next((one for one in reversed(self.passing) if is_subset(units, one) and is_subset(one, within)), 0)

    def smallest_failing(self, within: UnitSet, beyond: UnitSet) -> UnitSet | None:
        """The failing or unanswered probe inside `within` with the fewest units outside `beyond`.

        Probes contained in a passing one are left out: they failed because they were cut.
        """
        best: UnitSet | None = None
        for failing in (*self.failing, *self.unanswered):
            if not is_subset(failing, within) or self.passes_within(failing):
                continue
            if best is None or size(failing & ~beyond) < size(best & ~beyond):
                best = failing
        return best
