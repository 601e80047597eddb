"""How far two arrays are apart."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from math import inf, isfinite
from typing import Any

import numpy as np

#: What onnxruntime gives: a tensor, None for an optional that is empty, or a sequence.
Value = np.ndarray | None | list["Value"]


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Numbers agree where they differ by at most `absolute` plus `relative` times the largest magnitude in their array.

    A net adds up numbers of that magnitude, so what is left near zero has their rounding error, not its own.
    Infinities agree with themselves only, and NaN with NaN. Of integers, which may be places and classes, `relative`
    allows nothing.
    """

    absolute: float = 1e-6
    relative: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two arrays of one output, of one sample or the worst of several.

    `absolute` is the largest difference where both numbers are finite, `relative` the same as a share of the largest
    finite magnitude before. `unlike` counts elements of which one is NaN or infinite and the other not, or infinite
    with another sign; `beyond` counts all that do not agree within the tolerance, those included. `form` says how dtype
    or shape differ; then nothing else is told.
    """

    output: str
    elements: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    unlike: int = 0
    beyond: int = 0
    form: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every element is within the tolerance."""
        return not self.beyond and not self.form

    def worst(self, other: "Difference") -> "Difference":
        """The two taken together, of one output in two samples."""
        return replace(
            self,
            elements=self.elements + other.elements,
            absolute=max(self.absolute, other.absolute),
            relative=max(self.relative, other.relative),
            unlike=self.unlike + other.unlike,
            beyond=self.beyond + other.beyond,
            form=self.form or other.form,
        )


def finite(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Fields of a dataclass as JSON has them, which knows no infinity: a share of nothing is null."""
    return {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in pairs}


def difference(output: str, before: Value, after: Value, tolerance: Tolerance) -> Difference:
    """Compare an output before and after a change, a sequence tensor by tensor."""
    if isinstance(before, list) or isinstance(after, list):
        if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
            return Difference(output=output, form="it became a sequence of another length, or none")
        parts = (difference(output, *pair, tolerance) for pair in zip(before, after, strict=True))
        return reduce(Difference.worst, parts, Difference(output=output))
    before, after = np.asarray(before), np.asarray(after)
    if before.dtype != after.dtype:
        return Difference(output=output, form=f"{before.dtype} became {after.dtype}")
    if before.shape != after.shape:
        return Difference(output=output, form=f"the shape {before.shape} became {after.shape}")
    if before.dtype.kind not in "fiuc" and not np.issubdtype(before.dtype, np.number):
        wrong = int((before != after).sum())
        return Difference(output=output, elements=before.size, unlike=wrong, beyond=wrong)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(wide), after.astype(wide)
    with np.errstate(all="ignore"):
        both = np.isfinite(old) & np.isfinite(new)
        gap = np.where(both, np.abs(old - new), 0.0)
        unlike = ~both & ~((before == after) | (np.isnan(old) & np.isnan(new)))
    whole = before.dtype.kind in "iu"
    if whole:  # float64 does not hold all of int64
        gap = np.where(before == after, 0.0, np.maximum(gap, 1.0))
    largest, apart = float(np.abs(old[both]).max(initial=0.0)), float(gap.max(initial=0.0))
    beyond = unlike | (gap > tolerance.absolute + (0.0 if whole else tolerance.relative * largest))
    return Difference(
        output=output,
        elements=before.size,
        absolute=apart,
        relative=apart / largest if largest else apart and inf,
        unlike=int(unlike.sum()),
        beyond=int(beyond.sum()),
    )
