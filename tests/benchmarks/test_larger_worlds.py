"""The judge of larger models knows what is false, and their compilers are made again from a seed."""

import random

import pytest

from onnxbisect.unitset import UnitSet, members, of
from support.engine.large_compilers import CLASSES, LargeClass
from support.engine.large_worlds import LargeWorld, search
from support.engine.worlds import chain


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: f"{one.letter} {one.words}")
def test_each_class_has_worlds_that_fail_as_a_whole(one: LargeClass) -> None:
    (seed, made), (again, alike) = *one.worlds(1), *one.worlds(1)
    assert seed == again
    assert made.universe.successors == alike.universe.successors
    chance = random.Random(seed)
    for _ in range(20):
        units = of(unit for unit in range(len(made.universe)) if chance.random() < 0.5)
        assert made.refused(units) == alike.refused(units)
    assert all(made.refused(units) for units in made.planted)


def test_a_fact_is_false_where_a_part_passes_that_holds_it() -> None:
    """Of a chain of three ops the first is refused, and the last where the one before it is not in the file."""
    graph = chain([unit % 3 for unit in range(15)])

    def refused(units: UnitSet) -> bool:
        return any(unit % 3 == 0 or (unit % 3 == 2 and not units >> unit - 1 & 1) for unit in members(units))

    made = LargeWorld(universe=graph, refused=refused, planted=frozenset(1 << unit for unit in range(0, 15, 3)))
    assert made.passes_around(1 << 2, random.Random(0))
    assert not made.passes_around(1 << 3, random.Random(0))
    judged = search(made, 0, recheck=False, seconds=20)
    assert judged.ended
    assert not judged.false
    assert not judged.wrong


@pytest.mark.parametrize("letter", "ABCDEFJKLMNPRV")
def test_equal_files_get_equal_answers(letter: str) -> None:
    """Units of one solo are the same file when they are cut out alone; only in G and O a name or a number decides."""
    for one in (it for it in CLASSES if it.letter == letter):
        for seed, made in one.worlds(20):
            answers = {(made.universe.solo[unit], made.refused(1 << unit)) for unit in range(len(made.universe))}
            assert len(answers) == len(set(made.universe.solo)), (one.words, seed)
