"""Rows of numbers, of different lengths, in one array: what thousands of units take or make is read in one go."""

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
        """The rows of these, one behind the other. Costs by what it returns."""
        lengths = self._lengths[chosen]
        before = np.cumsum(lengths) - lengths
        found: Numbers = self._values[np.arange(lengths.sum()) + np.repeat(self._starts[chosen] - before, lengths)]
        return found

    def lengths(self, chosen: Numbers) -> Numbers:
        """How many numbers each of these rows has."""
        found: Numbers = self._lengths[chosen]
        return found


def distinct(numbers: Numbers, limit: int) -> Numbers:
    """Each of these numbers below `limit` once, in the order of first sight."""
    found: Numbers = numbers[_first_seen(numbers, limit) == np.arange(len(numbers))]
    return found


def renumbered(numbers: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    """These numbers below `limit` as 0, 1, … in the order of first sight; and what each of those stands for."""
    first = _first_seen(numbers, limit)
    new = first == np.arange(len(numbers))
    return (np.cumsum(new) - 1)[first], numbers[new]


def _first_seen(numbers: Numbers, limit: int) -> Numbers:
    """For each number the place where it stands first."""
    places = np.full(limit, len(numbers))
    np.minimum.at(places, numbers, np.arange(len(numbers)))
    found: Numbers = places[numbers]
    return found
