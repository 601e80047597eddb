"""From a universe and the verdicts so far to the probes worth asking next, or the diagnosis.

A pure function: it is replayed after every verdict, never resumed, so that any driver on any machine can turn the
crank and a crash loses nothing but the calls that were under way.
"""

from onnxbisect.diagnosis import Diagnosis
from onnxbisect.search.conclude import conclude
from onnxbisect.search.oracle import Oracle
from onnxbisect.search.plan import Ask, Plan, Verdicts
from onnxbisect.search.search import Search
from onnxbisect.unitset import UnitSet, is_subset
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
    if not asks:
        if oracle.flaky:
            return Plan(asks=(), diagnosis=diagnosis, expected=0.0)
        return _last_word(universe, verdicts, diagnosis, recheck)
    expected = 0.0 if search.finished else len(asks) + search.locator.surprise
    if len(asks) < width:
        asks += _speculate(universe, verdicts, asks, width - len(asks), recheck)
    return Plan(asks=tuple(asks), diagnosis=diagnosis, expected=expected)


def _last_word(universe: Universe, verdicts: Verdicts, diagnosis: Diagnosis, recheck: bool) -> Plan:
    """The diagnosis of the search that asks one question at a time, where it names the same culprits.

    Workers that would idle ask what may turn out pointless, and answers kept from other models come unasked. What is
    known steers the search, so its evidence would be another one for every number of workers. What the one-by-one
    search would have asked besides is asked, too. The culprits say what the answers will be, so all of that comes
    together.
    """
    known: dict[UnitSet, tuple[Verdict, ...]] = {}
    missing: list[Ask] = []
    while True:
        search, oracle = _replay(universe, known, recheck)
        if not oracle.wanted:
            break
        ask = next(iter(oracle.wanted.values()))
        answers = verdicts.get(ask.units, ())
        if ask.attempt < len(answers):
            answer = answers[ask.attempt]
        else:
            missing.append(ask)
            answer = Verdict(status=Status.FAIL if _holds_a_culprit(ask.units, diagnosis) else Status.PASS)
        known[ask.units] = (*known.get(ask.units, ()), answer)
    if missing:
        return Plan(asks=tuple(missing), diagnosis=diagnosis, expected=float(len(missing)))
    one_by_one = conclude(universe, oracle, search, recheck)
    agreed = _named(one_by_one) == _named(diagnosis)
    return Plan(asks=(), diagnosis=one_by_one if agreed else diagnosis, expected=0.0)


def _holds_a_culprit(units: UnitSet, diagnosis: Diagnosis) -> bool:
    return any(is_subset(place, units) for culprit in diagnosis.culprits for place in culprit.occurrences)


def _named(diagnosis: Diagnosis) -> list[object]:
    """What a diagnosis says, without what it rests on."""
    culprits = [(it.units, it.occurrences, it.kind, it.certainty) for it in diagnosis.culprits]
    return [diagnosis.verdict, diagnosis.certificate.status, diagnosis.needs_context, culprits]


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
