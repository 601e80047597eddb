"""What a proof of a repair says: how far each place and the model's outputs differ, and how far they may."""

from dataclasses import dataclass, field

import numpy as np

from onnxbisect.model.scopes import bodies
from onnxbisect.proof import Difference, Tolerance
from onnxbisect.remedies.candidate import Candidate
from onnxbisect.rewrites import Exactness

_EXACT = Tolerance(absolute=0, relative=0)
_OF_OUTPUT = "the output"


@dataclass(frozen=True, kw_only=True)
class PlaceProof:
    """What one replacement changed at its outputs, and how much it may; `problem` says what is too much. `low` is the
    same in the low precision that the target computes in, if it does.
    """

    candidate: Candidate
    differences: tuple[Difference, ...]
    allowed: Tolerance
    problem: str = ""
    low: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a repair changed in `samples` samples. `problem` says why the whole is not proven, where no single place
    is to blame.
    """

    places: tuple[PlaceProof, ...] = ()
    outputs: tuple[Difference, ...] = ()
    allowed: Tolerance = field(default_factory=Tolerance)
    samples: int = 0
    problem: str = ""

    @property
    def failed(self) -> tuple[PlaceProof, ...]:
        """The places whose replacement does not keep its promise."""
        return tuple(place for place in self.places if place.problem)

    @property
    def disagreement(self) -> str:
        """How the model's outputs differ by more than they may."""
        worst = max((it for it in self.outputs if not it.agrees), key=lambda it: it.relative, default=None)
        if worst is None:
            return ""
        share = (
            f"{worst.relative:.2g} of its largest magnitude, where {self.allowed.relative:g} is allowed (--relative)"
        )
        unlike = f", and in {worst.unlike} of {worst.elements} numbers by NaN, infinity or sort" if worst.unlike else ""
        return f"the model's output {worst.output} differs by {worst.absolute:.3g}, {share}{unlike}"

    @property
    def holds(self) -> bool:
        """Whether each place keeps its promise and the model's outputs agree."""
        return not self.failed and not self.problem and all(it.agrees for it in self.outputs)


def promised(candidate: Candidate, dtype: np.dtype) -> Tolerance:
    """How far the outputs of a replacement may be apart from the original's.

    A bound that is a share of the output is taken as it is. Others are shares of what is not computed here, and a
    bound for several rules in a row is none of theirs, nor one for what goes through a loop: then it is the default
    tolerance.
    """
    if candidate.exactness is Exactness.EXACT:
        return _EXACT
    bound = candidate.rules[0].bound
    plain = len(candidate.rules) == 1 and not any(map(bodies, candidate.replacement.nodes))
    if plain and (bound.of == _OF_OUTPUT or not bound.epsilons):
        share = bound.epsilons * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
        return Tolerance(absolute=bound.absolute, relative=share)
    return at_least(Tolerance(), dtype)


def at_least(tolerance: Tolerance, dtype: np.dtype) -> Tolerance:
    """Not less than what the element type can tell apart."""
    if dtype.kind != "f":
        return tolerance
    return Tolerance(absolute=tolerance.absolute, relative=max(tolerance.relative, 4 * float(np.finfo(dtype).eps)))


def too_far(found: Difference) -> str:
    """What is wrong with a difference that is more than it may be."""
    if found.form:
        return f"{found.output}: {found.form}"
    if found.unlike:
        return f"{found.unlike} of {found.elements} elements are NaN, infinite or another value on one side only"
    return f"it differs by {found.absolute:.3g}, in {found.beyond} of {found.elements} elements by more than it may"
