"""Measure the difference between two arrays."""

from dataclasses import dataclass, replace
from functools import reduce
from math import inf

import numpy as np

from onnxbisect.language import english
from onnxbisect.terms import Tolerance

#: A result of onnxruntime: a tensor, None for an empty optional, or a sequence.
Value = np.ndarray | None | list["Value"]


@dataclass(frozen=True, kw_only=True)
class OutputDifference:
    """The difference of an output between two models, for one sample or the worst of several.

    `absolute` is the largest difference between finite numbers, `relative` the same divided by the largest finite
    magnitude before. `unlike` counts elements of which only one is NaN or infinite, or both are infinite with different
    signs. `beyond` counts all elements outside the tolerance, including those. `form` describes a difference in dtype
    or shape; of other shapes and sorts the other fields are then not measured.
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

    def worst(self, other: "OutputDifference") -> "OutputDifference":
        """Combine the differences of one output in two samples: the worse of each number."""
        return replace(
            self,
            elements=self.elements + other.elements,
            absolute=max(self.absolute, other.absolute),
            relative=max(self.relative, other.relative),
            unlike=self.unlike + other.unlike,
            beyond=self.beyond + other.beyond,
            form=self.form or other.form,
        )


def difference(output: str, before: Value, after: Value, tolerance: Tolerance) -> OutputDifference:
    """Compare an output before and after a change; sequences are compared tensor by tensor."""
    if isinstance(before, list) or isinstance(after, list):
        if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
            return OutputDifference(output=output, form="it became a sequence of another length, or none")
        parts = (difference(output, *pair, tolerance) for pair in zip(before, after, strict=True))
        return reduce(OutputDifference.worst, parts, OutputDifference(output=output))
    before, after = np.asarray(before), np.asarray(after)
    form = "" if before.dtype == after.dtype else f"{before.dtype} became {after.dtype}"
    if form and not before.dtype.kind == after.dtype.kind == "f":
        return OutputDifference(output=output, form=form)
    if before.shape != after.shape:
        return OutputDifference(output=output, form=f"the shape {before.shape} became {after.shape}")
    if before.dtype.kind not in "fiuc" and not np.issubdtype(before.dtype, np.number):
        wrong = int((before != after).sum())
        return OutputDifference(output=output, elements=before.size, unlike=wrong, beyond=wrong)
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
    return OutputDifference(
        output=output,
        elements=before.size,
        absolute=apart,
        relative=apart / largest if largest else apart and inf,
        unlike=int(unlike.sum()),
        beyond=int(beyond.sum()),
        form=form,
    )


def fault(output: str, before: np.ndarray, after: np.ndarray, tolerance: Tolerance) -> str:
    """What is wrong with an output that is to be compared in numbers alone; empty if nothing is.

    NaN, infinities, one number everywhere and numbers that end at a limit are named, since they say more of what a
    compiler did than a difference. Where `before` is not finite, nothing is compared.
    """
    if before.shape != after.shape:
        return english(
            "'{output}' has the shape {found}, not {expected}",
            output=output,
            found=list(after.shape),
            expected=list(before.shape),
        )
    known = np.isfinite(before) if before.dtype.kind in "fc" else np.ones(before.shape, np.bool_)
    wide = np.complex128 if "c" in (before.dtype.kind, after.dtype.kind) else np.float64
    old, new = before[known].astype(wide), after[known].astype(wide)
    for broken, name in ((np.isnan(new), "NaN"), (np.isinf(new), english("infinite"))):
        if broken.any():
            return english(
                "'{output}' is {what} in {count} of {all} places where it should be a number",
                output=output,
                what=name,
                count=int(broken.sum()),
                all=old.size,
            )
    found = difference(output, old, new, tolerance)
    if found.agrees:
        return ""
    if wide is np.float64 and old.size > 1 and np.ptp(new) == 0:
        return english(
            "'{output}' is {number} everywhere, and should reach from {low} to {high}",
            output=output,
            number=f"{new[0]:.4g}",
            low=f"{old.min():.4g}",
            high=f"{old.max():.4g}",
        )
    if wide is np.float64 and (limit := _limit(output, old, new, tolerance)) is not None:
        return english(
            "'{output}' saturates at {limit}, and should reach from {low} to {high}",
            output=output,
            limit=f"{limit:.6g}",
            low=f"{old.min():.4g}",
            high=f"{old.max():.4g}",
        )
    return english(
        "'{output}' differs by up to {most}, in numbers up to {largest}",
        output=output,
        most=f"{found.absolute:.3g}",
        largest=f"{np.abs(old).max():.3g}",
    )


def _limit(output: str, old: np.ndarray, new: np.ndarray, tolerance: Tolerance) -> float | None:
    """The number beyond which numbers are cut off, if that explains the difference."""
    for end, beyond in ((new.max(), old > new.max()), (new.min(), old < new.min())):
        cut = beyond & (new == end)
        if cut.sum() > 1 and difference(output, np.where(cut, new, old), new, tolerance).agrees:
            return float(end)
    return None
