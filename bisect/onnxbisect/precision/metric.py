"""How near the outputs are to those of full precision, by each metric."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxbisect.precision.wanted import Metric

#: The outputs of one sample, by their place among the model's outputs.
Outputs = Mapping[str, np.ndarray]
#: Decibels that stand for equal numbers.
EQUAL = 200.0


def worst(metric: str, reference: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """The metric at the worst output of the worst sample."""
    values = [
        METRICS[metric](expected[name], found[name])
        for expected, found in zip(reference, outputs, strict=True)
        for name in expected
        if expected[name].dtype.kind in "fiub"
    ]
    return max(values) if metric == Metric.MAXABS else min(values)


def broken(reference: Sequence[Outputs], outputs: Sequence[Outputs]) -> bool:
    """Whether an output is NaN or infinite, or lacks, where full precision has a number."""
    return any(
        name not in found
        or found[name].shape != array.shape
        or (array.dtype.kind == "f" and bool((np.isfinite(array) & ~np.isfinite(found[name])).any()))
        for expected, found in zip(reference, outputs, strict=True)
        for name, array in expected.items()
    )


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


#: Every metric by its name.
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    Metric.SQNR: _sqnr,
    Metric.COSINE: _cosine,
    Metric.MAXABS: _maxabs,
}
