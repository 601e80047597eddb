"""The search for a minimal set of nodes to keep in high precision.

`plan` is a pure function of the scores so far, like the search for culprits: it runs the whole search from its
beginning, and the first score that is missing is the next question. So a search resumes from any record of scores.

With everything in high precision the score suffices. The set that suffices shrinks by prefixes of an order, the most
suspect units first: the last unit of the shortest sufficient prefix stays, and of the rest a shorter prefix is sought
(QuickXplain's idea, as in `onnxbisect.search.minimise`). That goes by groups of units first, then by units. Prefixes
grow and shrink by steps that double, so that the calls depend on the place of the units in the order.

Keeping more precise mostly helps, and not always: the score is no monotone function. So every step rests on a set that
was measured to suffice, and at the end each member is left out once. The set is then minimal in what was measured:
without any one of its members the score does not suffice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, log2

from onnxbisect.language import english
from onnxbisect.unitset import UnitSet, members, of, size, union

#: The score of each set of units that was kept in high precision; minus infinity where nothing came of it.
Scores = Mapping[UnitSet, float]


#: A set of so many units is small.
_FEW = 6
#: A unit with so much of the model's work is dear.
_DEAR = 0.01
#: How much a likely answer surprises, and one that is not.
_LIKELY, _UNLIKELY = 1.0, 2.0


class Why(StrEnum):
    """The purpose of a question."""

    FULL = english("everything in high precision")
    LOW = english("everything in low precision")
    GROUPS = english("the most suspect groups")
    UNITS = english("the most suspect nodes")
    NECESSARY = english("without one member")
    ALONE = english("one node in low precision")
    CHEAP = english("cheaper nodes instead of a dear one")
    GUESS = english("the set of the other arithmetic")
    WIDE = english("16 bits instead of high precision")


@dataclass(frozen=True, kw_only=True)
class KeptSet:
    """The set to keep in high precision in the next measurement."""

    keep: UnitSet
    why: Why


class PrecisionEnding(StrEnum):
    """How a search ended."""

    #: A set that suffices, and none of its members can be left out.
    MINIMAL = "minimal"
    #: Low precision suffices everywhere.
    NOTHING = "nothing"
    #: Not even high precision everywhere suffices.
    MISSED = "missed"
    #: The budget was spent; the set suffices, and some members may not be needed.
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True)
class MinimalSet:
    """The result of a search. `without` has the score without each member that was left out of the final set."""

    ending: PrecisionEnding
    keep: UnitSet
    without: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The units that can be low, the most suspect first, and partitions of them into groups, the coarsest first.

    `guess` is a set that suffices elsewhere; where it does here, only its members are asked about. `work` is the share
    of the model's work that each unit does, where it is known: of sets of one size the cheaper is taken.
    """

    order: tuple[int, ...]
    groups: tuple[tuple[UnitSet, ...], ...] = ()
    guess: UnitSet = 0
    work: Mapping[int, float] = field(default_factory=dict)

    def share(self, units: UnitSet) -> float:
        """The share of the work that these units do."""
        return sum(self.work.get(unit, 0.0) for unit in members(units))

    @property
    def everything(self) -> UnitSet:
        """All units that can be low."""
        return union(1 << unit for unit in self.order)


def plan(space: Space, scores: Scores, at_least: float) -> KeptSet | MinimalSet:
    """The next measurement, or what was found."""
    search = _Search(space, scores, at_least)
    try:
        return search.run()
    except _UnansweredError as missing:
        return missing.ask


def next_asks(space: Space, scores: Scores, at_least: float, width: int) -> list[KeptSet] | MinimalSet:
    """The next measurement and up to `width` - 1 that may follow it, for workers that would idle; or what was found.

    Those that may follow are what `plan` asks for if the open ones do not suffice, which is likelier, or suffice.
    """
    if isinstance(step := plan(space, scores, at_least), MinimalSet):
        return step
    found = {step.keep: step}
    assumed: list[tuple[float, dict[UnitSet, float]]] = [(0.0, dict(scores))]
    while assumed and len(found) < width:
        surprise, answers = assumed.pop(min(range(len(assumed)), key=lambda place: assumed[place][0]))
        if isinstance(step := plan(space, answers, at_least), MinimalSet):
            continue
        found.setdefault(step.keep, step)
        likely = step.why is Why.FULL
        assumed += [
            (
                surprise + (_LIKELY if suffices is likely else _UNLIKELY),
                {**answers, step.keep: inf if suffices else -inf},
            )
            for suffices in (likely, not likely)
        ]
    return list(found.values())


def so_far(space: Space, scores: Scores, at_least: float) -> MinimalSet:
    """The smallest set that was measured to suffice, for a search that ends before its time."""
    enough = [keep for keep, score in scores.items() if score >= at_least]
    best = min(enough, key=lambda keep: (size(keep), space.share(keep), -scores[keep], keep), default=space.everything)
    without = _without(best, scores)
    shown = len(without) == size(best) and all(score < at_least for score in without.values())
    return MinimalSet(ending=PrecisionEnding.MINIMAL if shown else PrecisionEnding.BUDGET, keep=best, without=without)


class _UnansweredError(Exception):
    def __init__(self, ask: KeptSet) -> None:
        super().__init__(ask)
        self.ask = ask


class _Search:
    def __init__(self, space: Space, scores: Scores, at_least: float) -> None:
        self._space, self._scores, self._at_least = space, scores, at_least
        self._place = {unit: place for place, unit in enumerate(space.order)}
        self._asked: set[UnitSet] = set()

    def run(self) -> MinimalSet:
        """The whole search; raises _UnansweredError at the first score that is missing."""
        kept = self._space.everything
        if not self._suffices(kept, Why.FULL):
            return MinimalSet(ending=PrecisionEnding.MISSED, keep=kept, without={})
        if self._suffices(0, Why.LOW):
            return MinimalSet(ending=PrecisionEnding.NOTHING, keep=0, without={})
        if self._space.guess and self._suffices(self._space.guess, Why.GUESS):
            return self._cheaper(self._minimal(self._space.guess))
        for partition in self._space.groups:
            parts = [part & kept for part in partition if part & kept]
            if 1 < len(parts) <= size(kept) // 2:
                kept = self._shortest(
                    sorted(parts, key=lambda part: min(self._place[unit] for unit in members(part))), Why.GROUPS
                )
        kept = self._shortest([1 << unit for unit in sorted(members(kept), key=self._place.__getitem__)], Why.UNITS)
        return self._cheaper(self._minimal(kept, look=True))

    def _suffices(self, keep: UnitSet, why: Why) -> bool:
        return self._score(keep, why) >= self._at_least

    def _score(self, keep: UnitSet, why: Why) -> float:
        if keep not in self._scores:
            raise _UnansweredError(KeptSet(keep=keep, why=why))
        self._asked.add(keep)
        return self._scores[keep]

    def _cheaper(self, found: MinimalSet) -> MinimalSet:
        """A small set with less work in high precision, where cheaper units do instead of a dear one.

        Of a large set one unit is exchanged for ever more, at the cost of another search for each.
        """
        share = self._space.share
        if size(found.keep) > _FEW:
            return found
        for dear in sorted(members(found.keep), key=lambda unit: -share(1 << unit)):
            if share(1 << dear) < _DEAR:
                break
            others = found.keep & ~(1 << dear)
            cheaper = [unit for unit in self._space.order if share(1 << unit) < share(1 << dear)]
            parts = [1 << unit for unit in sorted(cheaper, key=lambda it: share(1 << it)) if not others >> unit & 1]
            if parts and self._suffices(others | union(parts), Why.CHEAP):
                again = self._minimal(self._shortest(parts, Why.CHEAP, needed=others))
                if size(again.keep) <= _FEW and share(again.keep) < share(found.keep):
                    found = again
        return found

    def _shortest(self, parts: Sequence[UnitSet], why: Why, needed: UnitSet = 0) -> UnitSet:
        """What is needed with a small selection of parts, so that it suffices; all parts do, and no part does not.

        It ends as soon as a later step took more asks than it left parts out: where many parts are needed, leaving them
        out one by one is cheaper.
        """
        rest, first = list(parts), True
        while True:
            asked = len(self._asked)
            count = self._shortest_prefix(needed, rest, why)
            if count == 0:
                return needed
            left_out = len(rest) - count
            needed, rest = needed | rest[count - 1], rest[: count - 1]
            if not first and len(self._asked) - asked > left_out + 1:
                return needed | union(rest)
            first = False

    def _shortest_prefix(self, needed: UnitSet, rest: Sequence[UnitSet], why: Why) -> int:
        """How many of the first parts suffice with the needed ones; one fewer do not, as far as was asked.

        In turns, everything shrinks and nothing grows by steps that double, until one of the two tells where the end
        of the prefix is: where most parts are needed it is the last one, and where few are the first ones suffice. As
        long as nothing is needed yet, the order is trusted, and the prefix only grows.
        """
        low, high, step = -1 if needed else 0, len(rest), 1
        while high - low > 1 and step <= len(rest):
            if needed and (count := max(len(rest) - step, low + 1)) < high:
                if not self._suffices(needed | union(rest[:count]), why):
                    low = count
                    break
                high = count
            if low < (count := step // 2 if needed else step) < high:
                if self._suffices(needed | union(rest[:count]), why):
                    high = count
                    break
                low = count
            step *= 2
        while high - low > 1:
            middle = (low + high) // 2
            if self._suffices(needed | union(rest[:middle]), why):
                high = middle
            else:
                low = middle
        return high

    def _minimal(self, kept: UnitSet, *, look: bool = False) -> MinimalSet:
        """The set without members that are not needed, the dearest and least suspect first, until each one is.

        Of many members, several are left out at a time: twice as many while they turn out not to be needed. As soon as
        more of them were needed than a small set has, and so many that the errors of each unit cost little beside the
        asks for them, there is a second look.
        """
        rest = sorted(members(kept), key=lambda unit: (-self._space.share(1 << unit), -self._place[unit]))
        count, needed, units = max(len(rest) // _FEW // 2, 1), 0, self._space.order
        shown: set[int] = set()
        while needed < len(rest):
            count = min(count, len(rest) - needed)
            smaller = kept & ~of(rest[:count])
            if self._suffices(smaller, Why.NECESSARY):
                kept, rest = smaller, rest[count:]
                count, needed = 2 * count, 0
            elif count > 1:
                count //= 2
            else:
                shown.add(rest[0])
                if look and len(shown) > _FEW and len(units) <= len(shown) * log2(len(units)):
                    # Again by measured errors, of each unit low alone; it lies within what reverting the worst gives.
                    own = {unit: self._score(self._space.everything & ~(1 << unit), Why.ALONE) for unit in units}
                    again = self._shortest([1 << unit for unit in sorted(own, key=own.__getitem__)], Why.UNITS)
                    return self._minimal(min(kept, again, key=lambda it: (size(it), self._space.share(it))))
                rest = [*rest[1:], rest[0]]
                needed += 1
        return MinimalSet(ending=PrecisionEnding.MINIMAL, keep=kept, without=_without(kept, self._scores))


def _without(keep: UnitSet, scores: Scores) -> dict[int, float]:
    return {unit: scores[keep & ~(1 << unit)] for unit in members(keep) if keep & ~(1 << unit) in scores}
