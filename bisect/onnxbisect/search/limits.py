"""Limits of a compiler: it takes only so many units, or gives no answer above a size.

That the number of units is to blame shows with others: as many fail, too.

Above a size without answers, the search asks pieces. Each holds each of its units with the neighbours, so what fails
for a unit and what is next to it shows in one of them.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from onnxbisect.language import english
from onnxbisect.search.oracle import Fails, Oracle
from onnxbisect.search.pattern import apart
from onnxbisect.search.state import FEWEST_UNITS, Suspect
from onnxbisect.unitset import UnitSet, is_subset, lowest, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind

#: Unanswered probes, larger than all that passed, after which size is considered as the cause.
_LATE = 2
#: The smallest of them is at most so many times as large as the largest probe that passed.
_NEAR = 2
#: Smallest piece for which pieces are worth asking.
_SMALLEST = 4
#: Interactions of as many units after which their number is considered as the cause.
_MANY_AS_LARGE = 2
#: Most choices of units that are looked at for one that holds no suspect.
_MOST_CHOICES = 1000


class AnswerLimitError(Exception):
    """Probes of more than about `units` units get no answer."""

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self.units = units


def too_large_to_answer(oracle: Oracle) -> None:
    """Raise AnswerLimitError if size keeps probes from an answer; one probe may be asked to rule out a unit that hangs.

    The evidence: several unanswered probes are larger than all that passed, and the units of the smallest of them were
    answered in smaller probes. What could not be asked (`Kind.INVALID`) is no evidence.
    """
    largest = size(oracle.passing[0]) if oracle.passing else 0
    late = [
        probe
        for probe in oracle.unanswered
        if size(probe) > largest and (verdict := oracle.look(probe)) and verdict.kind is not Kind.INVALID
    ]
    if largest < _SMALLEST or len(late) < _LATE or size(late[0]) > _NEAR * largest:
        return
    answered = oracle.exonerated | union(failing for failing in oracle.failing if size(failing) <= largest)
    left = late[0] & ~answered
    if left and size(left) <= largest:
        left = 0 if oracle.ask(left, english("a part without an answer, alone")).final else left
    if not left:
        raise AnswerLimitError(largest)


def limited_pool(universe: Universe, minimal: UnitSet, fails: Fails) -> UnitSet:
    """All units of an op of which the target accepts one fewer than `minimal` has; 0 if there is no such limit.

    The evidence: other choices of the same size fail, and a choice of one unit fewer passes.
    """
    op = universe.op[lowest(minimal)]
    if any(universe.op[unit] != op for unit in members(minimal)):
        return 0
    for pool in dict.fromkeys((universe.units_by_op[op], universe.variant_members[universe.variant[lowest(minimal)]])):
        units, count = list(members(pool)), size(minimal)
        if len(units) == count or not is_subset(minimal, pool):
            continue
        # The same choices for any `minimal`, so that each is asked once.
        several = dict.fromkeys((of(units[:count]), of(units[-count:]), apart(universe, units, count)))
        if any(fails(1 << unit, english("{op} alone", op=op)) for unit in members(union(several))):
            continue  # an op that fails alone is no evidence of a limit
        if all(fails(chosen, english("{count} others of {op}", count=count, op=op)) for chosen in several):
            fewer = of(units[: count - 1])
            if not fails(fewer, f"{count - 1} of {op}"):
                return pool
    return 0


def are_too_many(
    universe: Universe, oracle: Oracle, suspects: Sequence[Suspect], minimal: UnitSet, fails: Fails
) -> bool:
    """Whether the number of units is to blame: others as many fail, too, that hold no suspect.

    Asked where several interactions of as many units were found and nothing as large has passed.
    """
    if len(universe) < FEWEST_UNITS:
        return False
    count = size(minimal)
    alike = [it for it in suspects if it.interaction and size(it.units) == count]
    if len(alike) < _MANY_AS_LARGE or any(size(it) >= count for it in oracle.passing):
        return False
    outside = [*members(universe.everything & ~minimal), *members(minimal)]
    as_large = [_as_large(suspects, order, minimal) for order in (outside, outside[::-1])]
    return all(units and fails(units, english("other units as many")) for units in as_large)


def _as_large(suspects: Sequence[Suspect], order: Sequence[int], minimal: UnitSet) -> UnitSet:
    """The first units in this order that are as many and hold no suspect; 0 if there are none among some."""
    for chosen in islice(combinations(order, size(minimal)), _MOST_CHOICES):
        units = of(chosen)
        if units != minimal and not any(it.held_by(units) for it in suspects):
            return units
    return 0


def pieces(universe: Universe, region: UnitSet, most: int) -> Iterator[UnitSet]:
    """Parts of a region of at most so many units, such that each unit is in one of them with all its neighbours.

    Of a unit with more neighbours than that, each neighbour is in some part with it. In the model's order, which
    finishes one branch before the next, so that parts have few cut tensors.
    """
    piece: UnitSet = 0
    for group in _groups(universe, region, most):
        if size(piece | group) > most:
            yield piece
            piece = 0
        piece |= group
    if piece:
        yield piece


def _groups(universe: Universe, region: UnitSet, most: int) -> Iterator[UnitSet]:
    for unit in members(region):
        around = list(members(universe.neighbours(1 << unit) & region))
        step = max(1, most - 1)
        for start in range(0, max(1, len(around)), step):
            yield 1 << unit | of(around[start : start + step])


def is_covered(universe: Universe, oracle: Oracle, piece: UnitSet, most: int) -> bool:
    """Whether each unit of the piece passed with all its neighbours in the piece."""
    return all(map(oracle.passes_within, _groups(universe, piece, most)))


def covering(universe: Universe, oracle: Oracle, region: UnitSet, most: int) -> tuple[UnitSet, ...]:
    """Passing probes inside a region that together show every unit with its neighbours, largest first."""
    left = list(_groups(universe, region, most))
    chosen = []
    for passing in oracle.passing:
        rest = [group for group in left if not is_subset(group, passing)]
        if len(rest) < len(left) and is_subset(passing, region):
            chosen.append(passing)
            left = rest
    return tuple(chosen)
