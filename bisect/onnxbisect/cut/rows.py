"""Rows of numbers of different lengths in one array, to read the inputs or outputs of thousands of units at once."""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.intp]


class Rows:
    """A row of whole numbers for each of `0 … n-1`."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        listed = list(rows)
        self._lengths = np.fromiter(map(len, listed), np.intp, len(listed))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._values = np.fromiter(chain.from_iterable(listed), np.intp)

    def of(self, chosen: Numbers) -> Numbers:
        """The concatenated rows of `chosen`, in time linear in the result."""
        lengths = self._lengths[chosen]
        before = np.cumsum(lengths) - lengths
        found: Numbers = self._values[np.arange(lengths.sum()) + np.repeat(self._starts[chosen] - before, lengths)]
        return found

    def lengths(self, chosen: Numbers) -> Numbers:
        """The length of each chosen row."""
        found: Numbers = self._lengths[chosen]
        return found


def distinct(numbers: Numbers, limit: int) -> Numbers:
    """The different numbers, all below `limit`, in order of first appearance."""
    found: Numbers = numbers[_first_seen(numbers, limit) == np.arange(len(numbers))]
    return found


def renumbered(numbers: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    """The numbers replaced by 0, 1, … in order of first appearance, and the number that each of these replaces."""
    first = _first_seen(numbers, limit)
    new = first == np.arange(len(numbers))
    return (np.cumsum(new) - 1)[first], numbers[new]


def _first_seen(numbers: Numbers, limit: int) -> Numbers:
    """For each number below `limit` the index of its first appearance."""
    places = np.full(limit, len(numbers))
    np.minimum.at(places, numbers, np.arange(len(numbers)))
    found: Numbers = places[numbers]
    return found
