"""From a universe and the verdicts so far to the next probes, or the diagnosis.

A pure function: every call replays the search from the start, so any driver on any machine can continue a search, and a
crash loses only the compiles that were running.

The replayed search compiles one probe at a time. It does not see verdicts that it did not ask for (of speculative
probes, of other searches) until it asks for them. Therefore a diagnosis does not depend on the number of workers, the
order of their answers, or earlier verdicts on record.

Workers that would idle get speculative probes: those that the search asks for next if the likely answers come, and
groups of what is still unknown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from onnxbisect.answer import Ask, Verdicts
from onnxbisect.diagnosis import Diagnosis
from onnxbisect.language import english
from onnxbisect.search.atoms import units_of
from onnxbisect.search.conclude import conclude
from onnxbisect.search.doubts import doubts
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.search import SearchReplay
from onnxbisect.search.state import SearchState
from onnxbisect.unitset import UnitSet, is_subset, lowest, size
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status, Verdict

Answers = dict[UnitSet, tuple[Verdict, ...]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The useful probes now, best first; empty when the search is done.

    `diagnosis` is the final one if `asks` is empty, else the one that a search whose budget ended here would report.
    `expected` is the probable number of further calls.
    """

    asks: tuple[Ask, ...]
    diagnosis: Diagnosis
    expected: float


@dataclass(frozen=True)
class Seen:
    """Verdicts that the search is shown, and the probes in the order in which it asked for them."""

    verdicts: Answers = field(default_factory=dict)
    asked: tuple[UnitSet, ...] = ()

    def __or__(self, answers: Answers) -> "Seen":
        return Seen(self.verdicts | answers, (*self.asked, *answers))


Replay = Callable[[Seen], tuple[SearchReplay, Oracle]]

#: Fewest idle workers for which group tests pay off.
_FEWEST_GROUPS = 8
#: Groups for each culprit of the lower bound, which is mostly too low: a group then passes about as often as it fails.
_GROUPS_PER_CULPRIT = 4
#: Most probes before the whole model has an answer: it may pass, or its log may name the ops.
_MOST_AT_FIRST = 3
#: The options of a universe's last replay, what it saw, and what it asked for. Only saves time: a replay from the start
#: sees and asks the same.
_LAST: WeakKeyDictionary[Universe, tuple[tuple[bool, bool, bool], Seen, list[Ask]]] = WeakKeyDictionary()


def plan(
    universe: Universe,
    verdicts: Verdicts,
    width: int = 1,
    *,
    recheck: bool = False,
    brief: bool = False,
    as_is: bool = False,
) -> Plan:
    """The useful probes now, best first, with the diagnosis so far.

    Probes that do not depend on each other are all returned. If they are fewer than `width`, speculative ones follow:
    those that the search would ask next if an open probe is answered in the likelier, or in the other, way.

    `recheck`: every verdict that decides a culprit or the certificate needs `oracle.LEAD` equal answers, as it does
    from the first contradiction on in any case. For compilers known to be non-deterministic.

    `brief`: ask one place of each culprit and one remainder, and no contexts of all sizes in a small piece, so an
    interaction may be reported with more units than it needs; in a small piece, whose ops were chosen because they
    pass, look for a group that fails before an op that does. For pieces that are not reported themselves, because the
    repaired model is compiled in the end.

    `as_is`: search also where the compiler names an invalid node of the model.
    """
    asks, search, oracle = _planned(universe, verdicts, width, (recheck, brief, as_is))
    diagnosis = conclude(universe, oracle, search, recheck, verdicts)
    expected = len(asks) + (0.0 if search.state.finished else search.state.surprise)
    return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=expected)


def next_asks(
    universe: Universe, verdicts: Verdicts, width: int = 1, *, recheck: bool = False, brief: bool = False
) -> list[Ask]:
    """The probes of `plan` without its diagnosis, which takes as long to make as a replay."""
    asks, _, _ = _planned(universe, verdicts, width, (recheck, brief, False))
    return asks


def _planned(
    universe: Universe, verdicts: Verdicts, width: int, options: tuple[bool, bool, bool]
) -> tuple[list[Ask], SearchReplay, Oracle]:
    recheck, brief, as_is = options
    seen = _resume(universe, verdicts, options)
    while True:
        search, oracle = _replay(universe, seen, *options)
        due = oracle.due
        asks = _without_answer(due, verdicts)
        if asks or not due:
            break
        seen = seen | _answers(due, verdicts)
    _LAST[universe] = (options, seen, due)
    if search.state.finished and not brief:
        last = doubts(universe, oracle, search.state, search.remainder, Oracle(universe, verdicts))
        asks = [Ask(units=units, attempt=0, why=why) for units, why in last if units not in verdicts]
        return asks, search, oracle
    if asks and len(asks) < width:
        replay = partial(_replay, universe, recheck=recheck, brief=brief, as_is=as_is)
        asks += speculate(universe, search, oracle, replay, seen, verdicts, asks, width - len(asks))
    return asks, search, oracle


def _resume(universe: Universe, verdicts: Verdicts, options: tuple[bool, bool, bool]) -> Seen:
    """What the last replay saw, with the answers to what it asked for once all of them are on record."""
    last = _LAST.get(universe)
    if last is None or last[0] != options:
        return Seen()
    _, seen, due = last
    if any(tuple(verdicts.get(units, ())[: len(answers)]) != answers for units, answers in seen.verdicts.items()):
        return Seen()
    return seen if _without_answer(due, verdicts) else seen | _answers(due, verdicts)


def _without_answer(asks: Sequence[Ask], verdicts: Verdicts) -> list[Ask]:
    return [ask for ask in asks if ask.attempt >= len(verdicts.get(ask.units, ()))]


def _answers(asks: Sequence[Ask], verdicts: Verdicts) -> Answers:
    return {ask.units: tuple(verdicts[ask.units][: ask.attempt + 1]) for ask in asks}


def _replay(universe: Universe, seen: Seen, recheck: bool, brief: bool, as_is: bool) -> tuple[SearchReplay, Oracle]:
    state = SearchState()
    oracle = Oracle(universe, seen.verdicts, recheck, state, seen.asked)
    search = SearchReplay(universe, oracle, state, brief=brief, as_is=as_is)
    search.run()
    return search, oracle


class _Forecast:
    """What the whole record implies about probes without an answer."""

    def __init__(self, universe: Universe, verdicts: Verdicts) -> None:
        self._universe = universe
        self._record = Oracle(universe, verdicts)
        exonerated = self._record.exonerated
        #: The units of each failing probe that never passed; if a single unit is to blame, it is one of these.
        self._blamed = {failing & ~exonerated for failing in self._record.failing}
        # A lower bound on the number of culprits.
        covered, count = 0, 0
        for blamed in sorted(self._blamed, key=size):
            if blamed and not blamed & covered:
                covered |= blamed
                count += 1
        self.culprits = count
        self.together = 0 in self._blamed

    def status(self, units: UnitSet) -> Status | None:
        """The likely answer; None if both are equally likely. Models that are searched seldom pass."""
        if any(is_subset(units, passing) for passing in self._record.passing):
            return Status.PASS
        if any(is_subset(failing, units) for failing in self._record.failing):
            return Status.FAIL
        if self.together:  # some units fail together that passed alone
            return None
        if is_subset(units, self._record.exonerated):
            return Status.PASS
        if units == self._universe.everything:
            return Status.FAIL
        alike = self._universe.variant_members[self._universe.variant[lowest(units)]] if size(units) == 1 else units
        return Status.FAIL if any(is_subset(blamed, alike) for blamed in self._blamed) else None


def speculate(
    universe: Universe,
    search: SearchReplay,
    oracle: Oracle,
    replay: Replay,
    seen: Seen,
    verdicts: Verdicts,
    asks: Sequence[Ask],
    room: int,
) -> list[Ask]:
    """Up to `room` further probes beside `asks`.

    First those that follow if all answers are as the record implies, then group tests of unknown atoms, then those that
    follow from either answer.
    """
    if not verdicts:
        room = min(room, _MOST_AT_FIRST)
    forecast = _Forecast(universe, verdicts)
    found: dict[UnitSet, Ask] = {}
    skip = {ask.units for ask in asks}

    def note(questions: Sequence[Ask]) -> None:
        for ask in questions:
            if len(found) < room and ask.units not in skip and ask.units not in verdicts:
                found.setdefault(ask.units, Ask(units=ask.units, attempt=0, why=ask.why, speculative=True))

    shown, wanted = seen, list(asks)
    while len(found) < room:
        implied = _either_answer(wanted, verdicts, forecast)
        if implied is None:
            break
        shown = shown | implied
        search, oracle = replay(shown)
        wanted = oracle.due
        if not wanted:
            break
        note(wanted)
    if groups := _groups(search, oracle, forecast, room - len(found)):
        note(groups)
        return list(found.values())
    for status in (Status.FAIL, Status.PASS):
        guessed = _either_answer(wanted, verdicts, forecast, status)
        if guessed is not None and len(found) < room:
            _, oracle = replay(shown | guessed)
            note(oracle.due)
    return list(found.values())


def _groups(search: SearchReplay, oracle: Oracle, forecast: _Forecast, count: int) -> list[Ask]:
    """`count` group tests that partition the unknown atoms, each together with the passing set."""
    locator = search.locator
    open_atoms = [
        atom for atom in search.state.open if forecast.status(oracle.probe(locator.atoms.alone(atom))) is None
    ]
    useless = search.state.capacity or forecast.together or locator.atoms.named.informative
    if useless or not open_atoms or count < _FEWEST_GROUPS:
        return []
    count = min(count, max(_FEWEST_GROUPS, _GROUPS_PER_CULPRIT * forecast.culprits))
    share = -(-len(open_atoms) // count)
    groups = [open_atoms[start : start + share] for start in range(0, len(open_atoms), share)]
    return [
        Ask(
            units=oracle.probe(locator.atoms.alone(group[0])),
            attempt=0,
            why=english("{say} alone", say=locator.atoms.say(group[0])),
        )
        if len(group) == 1
        else Ask(units=oracle.probe(search.state.passing | units_of(group)), attempt=0, why=english("a group of ops"))
        for group in groups
    ]


def _either_answer(
    wanted: Sequence[Ask], verdicts: Verdicts, forecast: _Forecast, otherwise: Status | None = None
) -> Answers | None:
    """An answer for each probe: the one on record, the likely one, or `otherwise`; None if one has none of these."""
    answers: Answers = {}
    for ask in wanted:
        if ask.units in verdicts and len(verdicts[ask.units]) > ask.attempt:
            answers[ask.units] = tuple(verdicts[ask.units][: ask.attempt + 1])
            continue
        status = None if ask.attempt else forecast.status(ask.units) or otherwise
        if status is None:
            return None
        answers[ask.units] = (Verdict(status=status),)
    return answers or None
