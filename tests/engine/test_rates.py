"""What a search states as a fact is true, whatever rule the compiler follows; the record never contradicts it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxbisect.diagnosis import Certainty
from onnxbisect.unitset import members, union
from support.engine.fused_worlds import fused_world
from support.engine.judging import Log, Run, judge
from support.engine.rule_worlds import Behaviour, world
from support.engine.worlds import World, silent
from support.examples import examples

#: In the first of these no search of a silent compiler is wrong; a hundred show one false fact at most in some classes.
_WORLDS = 50
_NAMED_WORLDS = 100
_LARGE_WORLDS = 60
#: Of the worlds here, which show a change for the worse; docs/benchmarks.md has the rates over thousands.
_MOST_FALSE = 1

#: Classes in which some searches of twelve units take more than a thousand probes (docs/benchmarks.md).
WITHOUT_END = (
    Behaviour.MEMORY,
    Behaviour.ERRORS,
    Behaviour.BOUNDARY,
    Behaviour.PIECES,
    Behaviour.FOLDING,
    Behaviour.PARTITIONS,
    Behaviour.WEIGHTS,
)
SEARCHES = [(behaviour, False) for behaviour in Behaviour if behaviour not in WITHOUT_END] + [(Behaviour.FLAKY, True)]

#: The classes that keep the limit today; docs/benchmarks.md has the rates of all of them.
KEPT = (
    Behaviour.MONOTONE,
    Behaviour.FUSION,
    Behaviour.EXCUSE,
    Behaviour.CUT,
    Behaviour.WEAK,
    Behaviour.UNLESS,
    Behaviour.XOR,
    Behaviour.COUNT,
)

#: Two to four times the calls of a search that believes the log, and half of those of a silent compiler. A log that
#: named what passed is not believed about places, which costs 1.5 calls in weak worlds, else less than half a call.
_MOST_CALLS_NAMED = 35
NAMED = (
    Behaviour.FUSION,
    Behaviour.SCATTERED,
    Behaviour.EXCUSE,
    Behaviour.CUT,
    Behaviour.WEAK,
    Behaviour.UNLESS,
    Behaviour.XOR,
)


@pytest.mark.long
@pytest.mark.timeout(900)  # a minute or two of CPU, of which four processes share two
@pytest.mark.parametrize("behaviour", KEPT)
def test_false_facts_are_rare(behaviour):
    """The compiler says nothing.

    `benchmarks/rates.py --examples` shows more of a failure.
    """
    false, missed, contradicted = [], [], []
    for seed in range(_WORLDS):
        one = world(behaviour, seed)
        run = Run(world=one, log=Log.SILENT, recheck=False)
        judgement = judge(run, run.diagnose())
        false += [f"{one}: {_units(judgement.false_facts)}"] if judgement.false_facts else []
        missed += [f"{one}: {_units(judgement.missed)}"] if judgement.missed else []
        contradicted += [f"{one}: {judgement.violations}"] if judgement.violations else []
    assert not false, f"{len(false)} of {_WORLDS}, the shortest: {min(false, key=len)}"
    assert not missed, f"{len(missed)} of {_WORLDS}, the shortest: {min(missed, key=len)}"
    assert not contradicted, f"{len(contradicted)} of {_WORLDS}, the shortest: {min(contradicted, key=len)}"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("behaviour", NAMED)
def test_an_op_that_a_log_names_is_not_simply_believed_in_small_models(behaviour):
    false, calls = [], 0
    for seed in range(_NAMED_WORLDS):
        run = Run(world=world(behaviour, seed), log=Log.FIRST_OFFENDER)
        judgement = judge(run, run.diagnose())
        calls += run.calls
        false += [seed] if judgement.false_facts else []
    assert len(false) <= _MOST_FALSE, false
    assert calls <= _MOST_CALLS_NAMED * _NAMED_WORLDS


@pytest.mark.parametrize("log", [Log.SILENT, Log.FIRST_OFFENDER])
def test_fused_ops_of_large_models_are_not_blamed(log):
    """Too many places to ask at each: what was not seen to fail where it stands is not stated as a fact."""
    false, missed, seen = [], [], 0
    count = examples(_LARGE_WORLDS)
    for seed in range(count):
        one = fused_world(seed)
        world = World(one.universe, one.refused, silent if log is Log.SILENT else one.first_offender)
        diagnosis = world.diagnose().diagnosis
        stated, named = 0, 0
        for culprit in diagnosis.culprits:
            named |= union(culprit.occurrences)
            if culprit.certainty is not Certainty.SUSPECTED:
                stated |= union(culprit.occurrences) & ~culprit.inferred
        seen += bool(stated)
        false += [f"{one}: {list(members(stated & ~one.to_blame))}"] if stated & ~one.to_blame else []
        missed += [f"{one}: {list(members(one.to_blame & ~named))}"] if one.to_blame & ~named else []
    assert len(false) <= _MOST_FALSE, f"{len(false)} of {count}, the shortest: {min(false, key=len)}"
    assert not missed, f"{len(missed)} of {count}, the shortest: {min(missed, key=len)}"
    assert seen >= count * 0.9


def _units(sets):
    return [list(members(units)) for units in sets]


@given(
    st.sampled_from(SEARCHES),
    st.integers(0, 100_000),
    st.sampled_from(Log),
    st.sampled_from([1, 4, 16]),
    st.none() | st.integers(0, 1000),
    st.none() | st.integers(0, 40),
)
@settings(max_examples=examples(100))
def test_the_record_never_contradicts_the_diagnosis(search, seed, log, width, order, budget):
    """Any class of compiler, any number of workers, answers in any order, a budget that ends anywhere."""
    behaviour, recheck = search
    run = Run(world=world(behaviour, seed), log=log, recheck=recheck)
    diagnosis = run.diagnose(width, random.Random(order) if order is not None else None, budget)
    assert not judge(run, diagnosis).violations, run.world
