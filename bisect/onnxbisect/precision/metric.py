"""How near the outputs are to those of full precision: the metrics that exist, and what is wanted of one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from onnxbisect.errors import OptionError
from onnxbisect.language import english

#: The outputs of one sample, by their place among the model's outputs.
Outputs = Mapping[str, np.ndarray]
#: Decibels that stand for equal numbers.
EQUAL = 200.0


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
    if metric not in METRICS:
        if ":" not in metric:
            raise OptionError(
                english(
                    "There is no metric '{metric}'; there are {names}, and FILE.py:FUNCTION for your own.",
                    metric=metric,
                    names=", ".join(METRICS),
                )
            )
        if (at_least is None) == (at_most is None):
            raise OptionError(
                english("Say what is wanted of {metric}: give either --at-least or --at-most.", metric=metric)
            )
        return Wanted(metric=metric, threshold=_number(at_least, at_most), at_most=at_least is None)
    smaller = metric == "maxabs"
    given, other = (at_most, at_least) if smaller else (at_least, at_most)
    if other is not None or (smaller and given is None):
        raise OptionError(
            english("{metric} is the better the smaller it is: give --at-most.", metric=metric)
            if smaller
            else english("{metric} is the better the larger it is: give --at-least.", metric=metric)
        )
    threshold = _DEFAULTS[metric] if given is None else _number(given)
    return Wanted(metric=metric, threshold=threshold, at_most=smaller, unit="dB" if metric == "sqnr" else "")


def worst(metric: str, reference: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """The metric at the worst output of the worst sample."""
    values = [
        METRICS[metric](expected[name], found[name])
        for expected, found in zip(reference, outputs, strict=True)
        for name in expected
        if expected[name].dtype.kind in "fiub"
    ]
    return max(values) if metric == "maxabs" else min(values)


def broken(reference: Sequence[Outputs], outputs: Sequence[Outputs]) -> bool:
    """Whether an output is NaN or infinite, or lacks, where full precision has a number."""
    return any(
        name not in found
        or found[name].shape != array.shape
        or (array.dtype.kind == "f" and bool((np.isfinite(array) & ~np.isfinite(found[name])).any()))
        for expected, found in zip(reference, outputs, strict=True)
        for name, array in expected.items()
    )


def _number(*given: float | None) -> float:
    value = next(it for it in given if it is not None)
    if not np.isfinite(value):
        raise OptionError(english("The threshold must be a finite number."))
    return value


def _pair(reference: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that full precision has, in both."""
    finite = np.isfinite(reference) if reference.dtype.kind == "f" else np.ones(reference.shape, bool)
    return reference[finite].astype(np.float64), found[finite].astype(np.float64)


def _sqnr(reference: np.ndarray, found: np.ndarray) -> float:
    expected, got = _pair(reference, found)
    signal, noise = float(np.sum(expected**2)), float(np.sum((expected - got) ** 2))
    if noise == 0:
        return EQUAL
    return float(np.clip(10 * np.log10(signal / noise), -EQUAL, EQUAL)) if signal else -EQUAL


def _cosine(reference: np.ndarray, found: np.ndarray) -> float:
    expected, got = _pair(reference, found)
    lengths = float(np.linalg.norm(expected) * np.linalg.norm(got))
    if lengths == 0:
        return float(not expected.any() and not got.any())
    return float(np.clip(np.sum(expected * got) / lengths, -1, 1))


def _maxabs(reference: np.ndarray, found: np.ndarray) -> float:
    expected, got = _pair(reference, found)
    return float(np.abs(expected - got).max(initial=0.0))


#: Every metric by its name: signal to noise in decibels, cosine of the angle, the largest difference.
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "sqnr": _sqnr,
    "cosine": _cosine,
    "maxabs": _maxabs,
}
_DEFAULTS = {"sqnr": 30.0, "cosine": 0.999}
