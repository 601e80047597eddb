"""From a universe and the verdicts so far to the probes worth asking next, or the diagnosis.

A pure function: it is replayed after every verdict, never resumed, so that any driver on any machine can carry the
search on and a crash loses nothing but the calls that were under way.

The search that is replayed asks one question at a time. Verdicts that it did not ask for (of speculation, of other
searches) stay unseen until it asks. So a diagnosis does not depend on the number of workers, on the order of their
answers, or on what was on record before.
"""

from functools import partial
from weakref import WeakKeyDictionary

from onnxbisect.search.conclude import conclude
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.plan import Plan, Verdicts
from onnxbisect.search.search import Search
from onnxbisect.search.speculate import Seen, speculate
from onnxbisect.universe import Universe

#: How far the last replay of a universe came, and with which options. Only saves time: a replay from nothing sees the
#: same.
_LAST_SEEN: WeakKeyDictionary[Universe, tuple[tuple[bool, bool], Seen]] = WeakKeyDictionary()


def plan(universe: Universe, verdicts: Verdicts, width: int = 1, *, recheck: bool = False, brief: bool = False) -> Plan:
    """The questions worth asking now, best first, with the diagnosis as far as it is known.

    Questions that do not depend on each other come together, however many they are. Where they are fewer than
    `width`, the list is filled with speculative ones: what would be asked next if an outstanding question is
    answered in the likelier or in the other way.

    `recheck`: every verdict that decides a culprit or the certificate is asked until `oracle.LEAD` answers agree,
    as it is from the first contradiction on in any case. For compilers known not to be deterministic.

    `brief`: one place of each culprit is asked about, and one remainder without culprits, so that an interaction may be
    stated with more units than it needs. For pieces that are no result: what is compiled in the end is the model.
    """
    options = (recheck, brief)
    seen = _resume(universe, verdicts, options)
    while True:
        search, oracle = _replay(universe, seen, *options)
        due = oracle.due
        if not due or any(ask.attempt >= len(verdicts.get(ask.units, ())) for ask in due):
            break
        seen |= {ask.units: tuple(verdicts[ask.units][: ask.attempt + 1]) for ask in due}
    _LAST_SEEN[universe] = (options, seen)
    diagnosis = conclude(universe, oracle, search, recheck, verdicts)
    asks = [ask for ask in due if ask.attempt >= len(verdicts.get(ask.units, ()))]
    if asks and len(asks) < width:
        replay = partial(_replay, universe, recheck=recheck, brief=brief)
        asks += speculate(universe, search, oracle, replay, seen, verdicts, asks, width - len(asks))
    expected = 0.0 if search.finished else len(asks) + search.locator.surprise
    return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=expected)


def _resume(universe: Universe, verdicts: Verdicts, options: tuple[bool, bool]) -> Seen:
    last = _LAST_SEEN.get(universe)
    if last is None or last[0] != options:
        return {}
    seen = last[1]
    if all(tuple(verdicts.get(units, ())[: len(answers)]) == answers for units, answers in seen.items()):
        return dict(seen)
    return {}


def _replay(universe: Universe, seen: Seen, recheck: bool, brief: bool) -> tuple[Search, Oracle]:
    oracle = Oracle(universe, seen, recheck)
    search = Search(universe, oracle, brief=brief)
    search.run()
    return search, oracle
