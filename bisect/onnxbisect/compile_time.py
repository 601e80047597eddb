"""How long a compile should take, judged by those that ended before it in the same search.

Only compiles that passed tell how long one takes: a compiler mostly refuses a probe before it does the expensive work.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from onnxbisect.unitset import UnitSet, is_subset, size

#: How many times as long as expected a compile may take: time can grow faster than the line says, and the machine may
#: be busier than before.
_MULTIPLE = 4
#: A limit below this would save little, and starting a compiler alone can take half as long on a busy machine.
_SHORTEST = 30.0
#: The line is trusted up to this many times the size of the largest probe that passed. Where time grows with the
#: square of the size, it is then too low by this factor, which `_MULTIPLE` has room for.
_REACH = 2
#: Compiles that the line goes through, the latest ones: pairs grow with the square of this.
_MOST = 100


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compile that ended with an answer: its units, wall seconds, and whether it passed."""

    units: UnitSet
    seconds: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Seconds after which a compile is hopeless, and those that it was expected to take."""

    seconds: float
    expected: float


def expected_seconds(compiled: Iterable[Compiled], units: int) -> float | None:
    """What a probe of so many units takes if it passes: a + b * units, neither negative. None while none has passed.

    The fit is the Theil-Sen estimator: b is the median slope of all pairs, a the median of what is left. Outliers, such
    as the first compile after a reboot, do not move it (Sen 1968, doi:10.1080/01621459.1968.10480934).
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
    """When to give a probe up; None where nothing on record is near enough to tell.

    Besides its size count compiles of the probe's parts, which may hold what is slow in it, and of probes at least as
    large.
    """
    count = size(units)
    expected = expected_seconds(compiled, count)
    largest = max((size(it.units) for it in compiled if it.passed), default=0)
    if expected is None or count > _REACH * largest:
        return None
    seen = max((it.seconds for it in compiled if size(it.units) >= count or is_subset(it.units, units)), default=0.0)
    return TimeLimit(seconds=max(_MULTIPLE * max(expected, seen), _SHORTEST), expected=expected)
