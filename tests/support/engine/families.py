"""Families of unit sets as truth tables, for brute force over all parts of a small model.

Bit `units` of a family says whether that unit set belongs to it. A model of 12 units has 4096 parts, so a rule over
all of them is a few operations on integers of 512 bytes, and so is the exact truth about it.
"""

from functools import cache, reduce
from operator import and_, or_

from onnxbisect.unitset import UnitSet, members

Family = int


@cache
def every(count: int) -> Family:
    """All parts of a model of `count` units, the empty one included."""
    return (1 << (1 << count)) - 1


@cache
def holding(count: int, unit: int) -> Family:
    """The sets that hold a unit."""
    # Of 2 << unit consecutive numbers the upper half has this bit: an all-ones table divided into such blocks.
    block = (1 << (1 << unit)) - 1 << (1 << unit)
    return block * (every(count) // ((1 << (2 << unit)) - 1))


def holding_all(count: int, units: UnitSet) -> Family:
    """The sets that hold all of these units."""
    return reduce(and_, (holding(count, unit) for unit in members(units)), every(count))


def holding_any(count: int, units: UnitSet) -> Family:
    """The sets that hold at least one of these units."""
    return reduce(or_, (holding(count, unit) for unit in members(units)), 0)


def holding_more(count: int, units: UnitSet, most: int) -> Family:
    """The sets that hold more than `most` of these units."""
    at_least = [every(count)] + [0] * (most + 1)
    for unit in members(units):
        for held in range(most + 1, 0, -1):
            at_least[held] |= at_least[held - 1] & holding(count, unit)
    return at_least[most + 1]


def with_parts(count: int, family: Family) -> Family:
    """The family and every part of its sets."""
    for unit in range(count):
        family |= (family & holding(count, unit)) >> (1 << unit)
    return family


def minimal_robust(count: int, failing: Family) -> tuple[UnitSet, ...]:
    """The minimal sets of which every superset fails: what a diagnosis should name, whatever the rule.

    For a monotone rule these are the minimal failing sets. A set that fails and passes with more around it is no
    robust one.
    """
    robust = every(count) & ~with_parts(count, every(count) & ~failing)
    grown = 0
    for unit in range(count):
        grown |= (robust & ~holding(count, unit)) << (1 << unit)
    return tuple(members(robust & ~grown))
