"""A size above which a compiler gives no answer, and the pieces of a model that get one.

A piece holds each unit with its neighbours, so what fails for a unit and what is next to it shows in one of them.
"""

from collections.abc import Iterator

from onnxbisect.language import english
from onnxbisect.search.oracle import Oracle
from onnxbisect.unitset import UnitSet, is_subset, members, of, size, union
from onnxbisect.universe import Universe
from onnxbisect.verdict import Kind

#: Unanswered probes, larger than all that passed, after which size is considered as the cause.
_LATE = 2
#: The smallest of them is at most so many times as large as the largest probe that passed.
_NEAR = 2
#: Smallest piece for which pieces are worth asking.
_SMALLEST = 4


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
