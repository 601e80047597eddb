"""What is wanted of low precision: which one, a metric, and the value that is enough.

A module of its own, because processes that load neither ONNX nor numpy use it.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

from onnxbisect.errors import OptionError
from onnxbisect.language import english


class Low(StrEnum):
    """A low precision.

    `int8` is the QDQ form of onnxruntime's own quantiser: activations in uint8 with one scale over the range that the
    samples gave, weights in int8, by channel from operator set 13 on. In `float16` each float tensor that a low node
    reads or makes is rounded to float16; what is summed inside of a node is float32, as matrix units have it.
    """

    INT8 = "int8"
    FLOAT16 = "float16"


class Metric(StrEnum):
    """A metric that exists: signal to noise in decibels, cosine of the angle, the largest difference."""

    SQNR = "sqnr"
    COSINE = "cosine"
    MAXABS = "maxabs"

    @property
    def smaller_is_better(self) -> bool:
        """Whether the threshold is what it may be at most."""
        return self is Metric.MAXABS


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A metric and its threshold. `score` makes larger better, whatever the metric."""

    metric: str
    threshold: float
    at_most: bool = False
    unit: str = ""

    def score(self, value: float) -> float:
        """The value of the metric as a score that has to reach `at_least`."""
        return -value if self.at_most else value

    @property
    def at_least(self) -> float:
        """What a score must reach."""
        return self.score(self.threshold)

    def shown(self, value: float) -> str:
        """A value of the metric for people."""
        if value in (inf, -inf):
            return english("no finite number")
        return f"{value:.1f} {self.unit}" if self.unit else f"{value:.4g}"

    @property
    def words(self) -> str:
        """`sqnr of at least 30.0 dB`."""
        value = self.shown(self.threshold)
        if self.at_most:
            return english("{metric} of at most {value}", metric=self.metric, value=value)
        return english("{metric} of at least {value}", metric=self.metric, value=value)


def wanted(metric: str, at_least: float | None, at_most: float | None) -> Wanted:
    """What is wanted, with the metric's own threshold where none is given. Raises OptionError."""
    if metric not in list(Metric):
        if ":" not in metric:
            raise OptionError(
                english(
                    "There is no metric '{metric}'; there are {names}, and FILE.py:FUNCTION for your own.",
                    metric=metric,
                    names=", ".join(Metric),
                )
            )
        if (at_least is None) == (at_most is None):
            raise OptionError(
                english("Say what is wanted of {metric}: give either --at-least or --at-most.", metric=metric)
            )
        return Wanted(metric=metric, threshold=_number(at_least, at_most), at_most=at_least is None)
    smaller = Metric(metric).smaller_is_better
    given, other = (at_most, at_least) if smaller else (at_least, at_most)
    if other is not None or (smaller and given is None):
        raise OptionError(
            english("{metric} is the better the smaller it is: give --at-most.", metric=metric)
            if smaller
            else english("{metric} is the better the larger it is: give --at-least.", metric=metric)
        )
    threshold = _DEFAULTS[Metric(metric)] if given is None else _number(given)
    return Wanted(metric=metric, threshold=threshold, at_most=smaller, unit="dB" if metric == Metric.SQNR else "")


def _number(*given: float | None) -> float:
    value = next(it for it in given if it is not None)
    if not isfinite(value):
        raise OptionError(english("The threshold must be a finite number."))
    return value


_DEFAULTS = {Metric.SQNR: 30.0, Metric.COSINE: 0.999}
