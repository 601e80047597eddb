"""What the search is measured with is right itself: the truth, the rules, and the judge."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxbisect.diagnosis import Certainty, CertificateStatus
from onnxbisect.unitset import members, size
from onnxbisect.verdict import Status
from support.engine.families import every, holding_all, holding_more, minimal_robust
from support.engine.judging import Log, Run, judge
from support.engine.rule_worlds import Behaviour, RuleWorld, world


def robust_by_definition(count: int, fails: set[int]) -> set[int]:
    parts = range(1 << count)
    robust = {one for one in parts if all(other in fails for other in parts if one & ~other == 0)}
    return {one for one in robust if not any(other != one and other & ~one == 0 for other in robust)}


@given(st.integers(1, 6).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, every(count)))))
def test_minimal_robust_sets_are_those_of_the_definition(drawn):
    count, failing = drawn
    fails = {units for units in range(1 << count) if failing >> units & 1}
    assert set(minimal_robust(count, failing)) == robust_by_definition(count, fails)


def test_families_hold_what_they_say():
    for units in range(1 << 5):
        assert holding_all(5, 0b10010) >> units & 1 == (units & 0b10010 == 0b10010)
        assert holding_more(5, 0b11110, 2) >> units & 1 == (size(units & 0b11110) > 2)


@pytest.mark.parametrize("behaviour", Behaviour)
def test_a_world_is_made_again_from_its_seed_and_its_whole_is_refused(behaviour):
    made = [world(behaviour, seed) for seed in range(20)]
    assert [str(one) for one in made] == [str(world(behaviour, seed)) for seed in range(20)]
    assert len({str(one) for one in made}) == 20
    for one in made:
        assert one.refused(one.universe.everything)
        assert one.truth, one
        assert all(one.refused(units) for units in one.truth)


#: Classes that refuse the planted patterns and nothing else.
PLANTED_ONLY = (Behaviour.MONOTONE, Behaviour.FLAKY, Behaviour.MANY, Behaviour.TIME_OUTS, Behaviour.WINDOW)


@pytest.mark.parametrize("behaviour", [it for it in Behaviour if it not in PLANTED_ONLY])
def test_every_class_but_monotone_ones_has_rules_of_its_own(behaviour):
    for seed in range(20):
        one = world(behaviour, seed)
        assert one.words
    assert any(set(world(behaviour, seed).truth) != set(world(behaviour, seed).planted) for seed in range(20))


def test_what_is_refused_is_what_the_words_say():
    def fails(one: RuleWorld, units: int) -> bool:
        variants = [one.universe.variant[unit] for unit in members(units)]
        bad, excuse = (int(word.removeprefix("V")) for word in one.words.split() if word.startswith("V"))
        return (bad in variants and excuse not in variants) or any(it & ~units == 0 for it in one.planted)

    for seed in range(10):
        one = world(Behaviour.UNLESS, seed)
        for units in range(1 << len(one.universe)):
            assert one.refused(units) == fails(one, units), one


def test_a_monotone_compiler_is_judged_without_a_complaint():
    run = Run(world=world(Behaviour.MONOTONE, 3))
    diagnosis = run.diagnose()
    verdict = judge(run, diagnosis)
    assert not verdict.false_facts
    assert not verdict.missed
    assert not verdict.violations
    assert 0 < run.calls <= run.probes == sum(map(len, run.verdicts.values()))


def test_a_large_part_gets_no_answer_and_a_compiler_that_is_down_refuses_whatever_it_is_asked():
    for seed in range(10):
        run = Run(world=world(Behaviour.TIME_OUTS, seed))
        run.diagnose()
        unanswered = {units for units, answers in run.verdicts.items() if answers[0].status is Status.UNRESOLVED}
        answered = run.verdicts.keys() - unanswered
        assert max(map(size, answered)) < min(map(size, unanswered), default=len(run.world.universe))
    run = Run(world=replace(world(Behaviour.MONOTONE, 3), down=range(1, 4)))
    run.diagnose()
    assert [answers[0].failed for answers in run.verdicts.values()][:4] == [True] * 4


def test_the_judge_sees_every_sort_of_falsehood():
    """A true diagnosis, made false in one respect at a time."""
    run = Run(world=world(Behaviour.MONOTONE, 3))
    diagnosis = run.diagnose()
    assert diagnosis.certificate.status is CertificateStatus.PROVEN
    [culprit] = diagnosis.culprits
    innocent = next(
        1 << unit for unit in range(len(run.world.universe)) if not any(1 << unit & it for it in run.world.truth)
    )
    blamed = replace(diagnosis, culprits=(culprit, replace(culprit, units=innocent, occurrences=(innocent,))))
    assert judge(run, blamed).innocent == (innocent,)
    assert any("passes and holds a confirmed culprit" in it for it in judge(run, blamed).violations)
    larger = culprit.units | innocent
    assert judge(run, replace(diagnosis, culprits=(replace(culprit, occurrences=(larger,)),))).wrong_extent == (larger,)
    part = 1 << min(members(culprit.units))
    assert judge(run, replace(diagnosis, culprits=(replace(culprit, occurrences=(part,)),))).passing == (part,)
    unnamed = judge(run, replace(diagnosis, culprits=()))
    assert unnamed.missed == run.world.truth
    assert any("fails and holds no culprit" in it for it in unnamed.violations)
    suspected = replace(culprit, occurrences=(innocent,), certainty=Certainty.SUSPECTED)
    assert not judge(run, replace(diagnosis, culprits=(culprit, suspected))).false_facts


@pytest.mark.parametrize("order", [None, 7])
def test_a_budget_ends_a_search_and_workers_answer_in_any_order(order):
    one = world(Behaviour.MONOTONE, 3)
    run = Run(world=one, log=Log.FIRST_OFFENDER)
    diagnosis = run.diagnose(4, random.Random(order) if order else None, budget=3)
    assert 3 <= run.calls <= 6
    assert diagnosis.certificate.status is CertificateStatus.BOUNDED
    whole = Run(world=one, log=Log.FIRST_OFFENDER).diagnose(4, random.Random(order) if order else None)
    assert {units for it in whole.culprits for units in it.occurrences} == set(one.truth)


def test_a_lie_is_told_again_in_the_same_run_and_only_where_the_world_lies():
    one = replace(world(Behaviour.FLAKY, 1), lies=0.3)
    records = [Run(world=one), Run(world=one), Run(world=replace(one, lies=0.0))]
    for record in records:
        record.diagnose()
    assert records[0].verdicts == records[1].verdicts
    lied = [
        units
        for units, answers in records[0].verdicts.items()
        if any(it.failed != one.refused(units) for it in answers)
    ]
    assert lied
    assert all(it.failed == one.refused(units) for units, answers in records[2].verdicts.items() for it in answers)
