"""From a universe and the verdicts so far to the probes worth asking next, or the diagnosis.

A pure function: it is replayed after every verdict, never resumed, so that any driver on any machine can carry the
search on and a crash loses nothing but the calls that were under way.

The search that is replayed asks one question at a time. Verdicts that it did not ask for (of speculation, of other
searches) stay unseen until it asks. So a diagnosis does not depend on the number of workers, on the order of their
answers, or on what was on record before.
"""

from weakref import WeakKeyDictionary

from onnxbisect.search.conclude import conclude
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.plan import Ask, Plan, Verdicts
from onnxbisect.search.search import Search
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status, Verdict

#: Verdicts in the order in which the search of one question at a time asked for them.
_Seen = dict[UnitSet, tuple[Verdict, ...]]

#: How far the last replay of a universe came. Only saves time: a replay from nothing sees the same.
_LAST_SEEN: WeakKeyDictionary[Universe, tuple[bool, _Seen]] = WeakKeyDictionary()

#: Answers that speculation assumes one after the other.
_DEPTH = 4


def plan(universe: Universe, verdicts: Verdicts, width: int = 1, *, recheck: bool = False) -> Plan:
    """The questions worth asking now, best first, with the diagnosis as far as it is known.

    Questions that do not depend on each other come together, however many they are. Where they are fewer than
    `width`, the list is filled with speculative ones: what would be asked next if an outstanding question is
    answered in the likelier or in the other way.

    `recheck`: every verdict that decides a culprit or the certificate is asked until `oracle.LEAD` answers agree,
    as it is from the first contradiction on in any case. For compilers known not to be deterministic.
    """
    seen = _resume(universe, verdicts, recheck)
    while True:
        search, oracle = _replay(universe, seen, recheck)
        wanted = list(oracle.wanted.values())
        due = wanted if oracle.wants_all else wanted[:1]
        if not due or any(ask.attempt >= len(verdicts.get(ask.units, ())) for ask in due):
            break
        seen |= {ask.units: tuple(verdicts[ask.units][: ask.attempt + 1]) for ask in due}
    _LAST_SEEN[universe] = (recheck, seen)
    diagnosis = conclude(universe, oracle, search, recheck, verdicts)
    asks = _unanswered(oracle, verdicts)
    if len(asks) < width and asks:
        asks += _speculate(universe, seen, verdicts, asks, width - len(asks), recheck)
    expected = 0.0 if search.finished else len(asks) + search.locator.surprise
    return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=expected)


def _resume(universe: Universe, verdicts: Verdicts, recheck: bool) -> _Seen:
    last = _LAST_SEEN.get(universe)
    if last is None or last[0] != recheck:
        return {}
    seen = last[1]
    if all(tuple(verdicts.get(units, ())[: len(answers)]) == answers for units, answers in seen.items()):
        return dict(seen)
    return {}


def _replay(universe: Universe, seen: _Seen, recheck: bool) -> tuple[Search, Oracle]:
    oracle = Oracle(universe, seen, recheck)
    search = Search(universe, oracle)
    search.run()
    return search, oracle


def _unanswered(oracle: Oracle, verdicts: Verdicts) -> list[Ask]:
    return [ask for ask in oracle.wanted.values() if ask.attempt >= len(verdicts.get(ask.units, ()))]


def _speculate(
    universe: Universe, seen: _Seen, verdicts: Verdicts, asks: list[Ask], room: int, recheck: bool
) -> list[Ask]:
    """Up to `room` more questions, from futures in which the first open questions are answered this way or that."""
    found: dict[UnitSet, Ask] = {}
    known = {ask.units for ask in asks}
    futures: list[_Seen] = [{}]
    while futures and len(found) < room:
        future = futures.pop(0)
        wanted = asks
        if future:
            _, oracle = _replay(universe, {**seen, **future}, recheck)
            wanted = list(oracle.wanted.values())
        for ask in wanted:
            if ask.units not in known and ask.units not in found and ask.units not in verdicts and len(found) < room:
                found[ask.units] = Ask(units=ask.units, attempt=0, why=ask.why, speculative=True)
        open_questions = [ask for ask in wanted if not ask.attempt]
        if not open_questions or len(future) >= _DEPTH:
            continue
        answered = {ask.units: tuple(verdicts[ask.units][:1]) for ask in open_questions if ask.units in verdicts}
        unknown = [ask.units for ask in open_questions if ask.units not in answered]
        for status in (Status.FAIL, Status.PASS) if unknown else (Status.FAIL,):
            assumed = dict.fromkeys(unknown, (Verdict(status=status),))
            futures.append({**future, **answered, **assumed})
    return list(found.values())
