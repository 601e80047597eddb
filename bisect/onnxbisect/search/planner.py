"""From a universe and the verdicts so far to the next probes, or the diagnosis.

A pure function: every call replays the search from the start, so any driver on any machine can continue a search, and a
crash loses only the compiles that were running.

The replayed search compiles one probe at a time. It does not see verdicts that it did not ask for (of speculative
probes, of other searches) until it asks for them. Therefore a diagnosis does not depend on the number of workers, the
order of their answers, or earlier verdicts on record.
"""

from collections.abc import Sequence
from functools import partial
from weakref import WeakKeyDictionary

from onnxbisect.answer import Ask
from onnxbisect.search.conclude import conclude
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.plan import Plan, Verdicts
from onnxbisect.search.search import Search
from onnxbisect.search.speculate import Seen, speculate
from onnxbisect.search.state import SearchState
from onnxbisect.universe import Universe

#: The options of a universe's last replay, what it saw, and what it asked for. Only saves time: a replay from the start
#: sees and asks the same.
_LAST: WeakKeyDictionary[Universe, tuple[tuple[bool, bool], Seen, list[Ask]]] = WeakKeyDictionary()


def plan(universe: Universe, verdicts: Verdicts, width: int = 1, *, recheck: bool = False, brief: bool = False) -> Plan:
    """The useful probes now, best first, with the diagnosis so far.

    Probes that do not depend on each other are all returned. If they are fewer than `width`, speculative ones follow:
    those that the search would ask next if an open probe is answered in the likelier, or in the other, way.

    `recheck`: every verdict that decides a culprit or the certificate needs `oracle.LEAD` equal answers, as it does
    from the first contradiction on in any case. For compilers known to be non-deterministic.

    `brief`: ask one place of each culprit and one remainder, so an interaction may be reported with more units than it
    needs. For pieces that are not reported themselves, because the repaired model is compiled in the end.
    """
    asks, search, oracle = _planned(universe, verdicts, width, recheck, brief)
    diagnosis = conclude(universe, oracle, search, recheck, verdicts)
    expected = 0.0 if search.state.finished else len(asks) + search.state.surprise
    return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=expected)


def next_asks(
    universe: Universe, verdicts: Verdicts, width: int = 1, *, recheck: bool = False, brief: bool = False
) -> list[Ask]:
    """The probes of `plan` without its diagnosis, which takes as long to make as a replay."""
    asks, _, _ = _planned(universe, verdicts, width, recheck, brief)
    return asks


def _planned(
    universe: Universe, verdicts: Verdicts, width: int, recheck: bool, brief: bool
) -> tuple[list[Ask], Search, Oracle]:
    options = (recheck, brief)
    seen = _resume(universe, verdicts, options)
    while True:
        search, oracle = _replay(universe, seen, *options)
        due = oracle.due
        asks = _without_answer(due, verdicts)
        if asks or not due:
            break
        seen |= _answers(due, verdicts)
    _LAST[universe] = (options, seen, due)
    if asks and len(asks) < width:
        replay = partial(_replay, universe, recheck=recheck, brief=brief)
        asks += speculate(universe, search, oracle, replay, seen, verdicts, asks, width - len(asks))
    return asks, search, oracle


def _resume(universe: Universe, verdicts: Verdicts, options: tuple[bool, bool]) -> Seen:
    """What the last replay saw, with the answers to what it asked for once all of them are on record."""
    last = _LAST.get(universe)
    if last is None or last[0] != options:
        return {}
    _, seen, due = last
    if any(tuple(verdicts.get(units, ())[: len(answers)]) != answers for units, answers in seen.items()):
        return {}
    return dict(seen) if _without_answer(due, verdicts) else seen | _answers(due, verdicts)


def _without_answer(asks: Sequence[Ask], verdicts: Verdicts) -> list[Ask]:
    return [ask for ask in asks if ask.attempt >= len(verdicts.get(ask.units, ()))]


def _answers(asks: Sequence[Ask], verdicts: Verdicts) -> Seen:
    return {ask.units: tuple(verdicts[ask.units][: ask.attempt + 1]) for ask in asks}


def _replay(universe: Universe, seen: Seen, recheck: bool, brief: bool) -> tuple[Search, Oracle]:
    state = SearchState()
    oracle = Oracle(universe, seen, recheck, state)
    search = Search(universe, oracle, state, brief=brief)
    search.run()
    return search, oracle
