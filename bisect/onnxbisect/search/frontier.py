"""Where wrong numbers begin: read from a log that compares tensors with their reference values.

What an op computes wrong makes wrong nearly everything that is computed from it, so a list of wrong tensors names one
op to blame and a hundred that are not. Of these only the first ones are suspects.
"""

from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe


def first_wrong(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The wrong units of a probe that no other wrong unit feeds, be it through units that the log does not list.

    A unit that is not listed is unknown. It is taken to be wrong where something wrong feeds it and right otherwise, so
    it passes on what is wrong and never begins it. A unit that is listed as right passes nothing on, and neither do the
    inputs of the probe.
    """
    unknown = probe & ~wrong & ~right
    fed = 0
    layer = seen = wrong
    while layer:
        after = 0
        for unit in members(layer):
            after |= universe.successors[unit]
        fed |= after
        layer = after & unknown & ~seen
        seen |= layer
    return wrong & ~fed


def unlisted_before(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The units that the log does not list and that lead to where wrong numbers begin: they may have begun there."""
    unknown = probe & ~wrong & ~right
    found = 0
    layer = first_wrong(universe, probe, wrong, right)
    while layer:
        before = 0
        for unit in members(layer):
            before |= universe.predecessors[unit]
        layer = before & unknown & ~found
        found |= layer
    return found
