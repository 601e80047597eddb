"""From a universe and the verdicts so far to the probes worth asking next, or the diagnosis.

A pure function: it is replayed after every verdict, never resumed, so that any driver on any machine can turn the
crank and a crash loses nothing but the calls that were under way.
"""

from onnxbisect.search.conclude import conclude
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.plan import Ask, Plan, Verdicts
from onnxbisect.search.search import Search
from onnxbisect.unitset import UnitSet
from onnxbisect.universe import Universe
from onnxbisect.verdict import Status, Verdict


def plan(universe: Universe, verdicts: Verdicts, width: int = 1, *, recheck: bool = False) -> Plan:
    """The questions worth asking now, best first, with the diagnosis as far as it is known.

    Questions that do not depend on each other come together, however many they are. Where they are fewer than
    `width`, the list is filled with speculative ones: what would be asked next if an outstanding question is
    answered in the likelier or in the other way.

    `recheck`: every verdict that decides a culprit or the certificate is asked until `oracle.LEAD` answers agree,
    as it is from the first contradiction on in any case. For compilers known not to be deterministic.
    """
    search, oracle = _replay(universe, verdicts, recheck)
    diagnosis = conclude(universe, oracle, search, recheck)
    asks = list(oracle.wanted.values())
    expected = 0.0 if search.finished else len(asks) + search.locator.surprise
    if asks and len(asks) < width:
        asks += _speculate(universe, verdicts, asks, width - len(asks), recheck)
    return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=expected)


def _replay(universe: Universe, verdicts: Verdicts, recheck: bool) -> tuple[Search, Oracle]:
    oracle = Oracle(universe, verdicts, recheck)
    search = Search(universe, oracle)
    search.run()
    return search, oracle


def _speculate(universe: Universe, verdicts: Verdicts, asks: list[Ask], room: int, recheck: bool) -> list[Ask]:
    """Up to `room` more questions, from futures in which the first open questions are answered this way or that."""
    found: dict[UnitSet, Ask] = {}
    known = {ask.units for ask in asks}
    futures: list[dict[UnitSet, tuple[Verdict, ...]]] = [{}]
    while futures and len(found) < room:
        future = futures.pop(0)
        _, oracle = _replay(universe, {**verdicts, **future}, recheck) if future else (None, None)
        wanted = list(oracle.wanted.values()) if oracle is not None else asks
        for ask in wanted:
            if ask.units not in known and ask.units not in found and not ask.attempt and len(found) < room:
                found[ask.units] = Ask(units=ask.units, attempt=0, why=ask.why, speculative=True)
        open_questions = [ask.units for ask in wanted if not ask.attempt]
        if open_questions and len(future) < 4:
            for status in (Status.FAIL, Status.PASS):
                answer = (Verdict(status=status),)
                futures.append({**future, **dict.fromkeys(open_questions, answer)})
    return list(found.values())
