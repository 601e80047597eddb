"""Where wrong numbers begin, by a log that compares tensors with their reference values.

One op that computes wrong values makes nearly everything behind it wrong, so such a list names one culprit and perhaps
a hundred innocent ops. Only the first wrong ones are suspects.
"""

from onnxbisect.unitset import UnitSet, members
from onnxbisect.universe import Universe


def first_wrong(universe: Universe, probe: UnitSet, wrong: UnitSet, right: UnitSet) -> UnitSet:
    """The wrong units of a probe that no other wrong unit feeds, directly or through units the log does not list.

    An unlisted unit counts as wrong if something wrong feeds it, and as right otherwise: it propagates wrong numbers
    and never starts them. Units listed as right, and the inputs of the probe, propagate nothing.
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
    """The unlisted units upstream of where wrong numbers begin; one of them may have started them."""
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
