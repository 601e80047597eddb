"""Estimate how long a compile should take from earlier compiles of the same search.

Only compiles that passed count: a compiler mostly refuses a probe before it does the expensive work.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from onnxbisect.unitset import UnitSet, is_subset, size

#: Time limit as a multiple of the expected time: time can grow faster than linearly, and the machine may be busier than
#: before.
_MULTIPLE = 4
#: Shortest limit in seconds. Starting a compiler alone can take half of it on a busy machine.
_SHORTEST = 30.0
#: The estimate is used up to this many times the size of the largest probe that passed. Where time grows with the
#: square of the size, it is too low by this factor, for which `_MULTIPLE` leaves room.
_REACH = 2
#: Most compiles used for the fit, the latest ones; it considers all pairs of them.
_MOST = 100


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compile that ended with a verdict: its units, wall seconds, and whether it passed."""

    units: UnitSet
    seconds: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Seconds after which a compile is stopped, and the expected seconds."""

    seconds: float
    expected: float


def expected_seconds(compiled: Iterable[Compiled], units: int) -> float | None:
    """Expected seconds for a passing probe of `units` units: a + b * units, neither negative. None if none has passed.

    The fit is the Theil-Sen estimator: b is the median slope of all pairs, a the median of the residuals. Outliers,
    such as the first compile after a reboot, do not move it (Sen 1968, doi:10.1080/01621459.1968.10480934).
    """
    points = [(size(it.units), it.seconds) for it in compiled if it.passed][-_MOST:]
    if not points:
        return None
    slopes = [(t - s) / (n - m) for (m, s), (n, t) in combinations(points, 2) if m != n]
    slope = max(median(slopes), 0.0) if slopes else 0.0
    start = median(seconds - slope * count for count, seconds in points)
    if start < 0:
        start, slope = 0.0, median(seconds / count for count, seconds in points)
    return start + slope * units


def time_limit(compiled: Sequence[Compiled], units: UnitSet) -> TimeLimit | None:
    """The time limit of a probe; None where no compile on record is close enough for an estimate.

    Besides the estimate from size, it considers compiles of parts of the probe, which may contain what is slow in it,
    and of probes at least as large.
    """
    count = size(units)
    expected = expected_seconds(compiled, count)
    largest = max((size(it.units) for it in compiled if it.passed), default=0)
    if expected is None or count > _REACH * largest:
        return None
    seen = max((it.seconds for it in compiled if size(it.units) >= count or is_subset(it.units, units)), default=0.0)
    return TimeLimit(seconds=max(_MULTIPLE * max(expected, seen), _SHORTEST), expected=expected)
